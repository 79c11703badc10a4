// Reference kernels: plain loops in double that say what an op means, for checks, never for speed.
// One factory serves every real dtype: operands are converted to double and back.
//
//   WEFT_REGISTER_REFERENCE_KERNEL("", "Exp", ReferenceKernel([](ReferenceCall& call) {
//     for (int64_t i = 0; i < call.output(0).size(); ++i) {
//       call.output(0)[i] = std::exp(call.input(0)[i]);
//     }
//     return absl::OkStatus();
//   }));
#ifndef WEFT_OPS_KERNELS_REFERENCE_REFERENCE_H_
#define WEFT_OPS_KERNELS_REFERENCE_REFERENCE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ops/kernel.h"

namespace weft::cpu {

// The values of one operand, row-major.
struct ReferenceOperand {
  bool present = false;
  DType dtype = DType::kInvalid;
  Shape shape;
  OperandSlice slice;
  std::vector<double> values;

  int64_t size() const { return static_cast<int64_t>(values.size()); }
  double& operator[](int64_t i) { return values[i]; }
  double operator[](int64_t i) const { return values[i]; }
};

// One run: read the inputs, fill the outputs (allocated, zeros). Absent operands are not present.
class ReferenceCall {
 public:
  const Attributes& attributes() const { return attributes_; }
  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  bool has_input(int i) const { return i < num_inputs() && inputs_[i].present; }
  bool has_output(int i) const { return i < num_outputs() && outputs_[i].present; }
  const ReferenceOperand& input(int i) const { return inputs_[i]; }
  ReferenceOperand& output(int i) { return outputs_[i]; }
  int64_t step() const { return step_; }

 private:
  friend class ReferenceRunner;
  Attributes attributes_;
  std::vector<ReferenceOperand> inputs_;
  std::vector<ReferenceOperand> outputs_;
  int64_t step_ = 0;
};
using ReferenceFn = std::function<absl::Status(ReferenceCall& call)>;

// A factory of kernels that call `fn`.
KernelFactory ReferenceKernel(ReferenceFn fn);

// The offset in an operand of shape `operand` (right-aligned broadcasting) of the element that
// belongs to element `flat` of `output`.
int64_t BroadcastOffset(const Shape& operand, const Shape& output, int64_t flat);

// Every element of output 0 by itself: fn(inputs' elements after broadcasting).
KernelFactory ReferenceElementwise(std::function<double(const std::vector<double>&)> fn);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_REFERENCE_REFERENCE_H_
