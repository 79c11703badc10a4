#include "ops/kernels/reference/reference.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "tensor/host_memory.h"
#include "tensor/tensor.h"

namespace weft::cpu {

class ReferenceRunner final : public Kernel {
 public:
  ReferenceRunner(const PrepareContext& context, const ReferenceFn& fn) : fn_(fn) {
    prototype_.attributes_ = context.attributes();
    for (int i = 0; i < context.num_inputs(); ++i) {
      prototype_.inputs_.push_back({context.HasInput(i),
                                    context.InputDType(i),
                                    context.InputShape(i),
                                    context.InputSlice(i),
                                    {}});
    }
    for (int i = 0; i < context.num_outputs(); ++i) {
      prototype_.outputs_.push_back({context.HasOutput(i),
                                     context.OutputDType(i),
                                     context.OutputShape(i),
                                     context.OutputSlice(i),
                                     {}});
    }
  }

  absl::Status Run(const KernelContext& context) override {
    ReferenceCall call = prototype_;
    call.step_ = context.step;
    for (int i = 0; i < call.num_inputs(); ++i) {
      if (call.has_input(i)) WEFT_RETURN_IF_ERROR(Read(context.inputs[i], call.inputs_[i]));
    }
    for (ReferenceOperand& output : call.outputs_) {
      if (output.present) output.values.assign(output.shape.num_elements(), 0.0);
    }
    WEFT_RETURN_IF_ERROR(fn_(call));
    for (int i = 0; i < call.num_outputs(); ++i) {
      if (call.has_output(i)) WEFT_RETURN_IF_ERROR(Write(call.outputs_[i], context.outputs[i]));
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status Read(const void* data, ReferenceOperand& operand) {
    const size_t bytes = DTypeBytes(operand.dtype, operand.shape.num_elements());
    if (bytes == 0) return absl::OkStatus();
    const Tensor view(operand.dtype, operand.shape, AdoptHostMemory(data, bytes, nullptr));
    WEFT_ASSIGN_OR_RETURN(operand.values, ToDoubles(view));
    return absl::OkStatus();
  }

  static absl::Status Write(const ReferenceOperand& operand, void* data) {
    if (operand.values.empty()) return absl::OkStatus();
    const Tensor doubles = Tensor::Of<double>(operand.shape, operand.values);
    WEFT_ASSIGN_OR_RETURN(const Tensor converted, CastTensor(doubles, operand.dtype));
    std::memcpy(data, converted.raw_data(), converted.bytes());
    return absl::OkStatus();
  }

  ReferenceFn fn_;
  ReferenceCall prototype_;
};

KernelFactory ReferenceKernel(ReferenceFn fn) {
  return [fn = std::move(fn)](
             const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    return std::make_unique<ReferenceRunner>(context, fn);
  };
}

int64_t BroadcastOffset(const Shape& operand, const Shape& output, int64_t flat) {
  int64_t offset = 0;
  int64_t stride = 1;
  for (int d = output.rank() - 1; d >= 0; --d) {
    const int64_t index = flat % output.dim(d);
    flat /= output.dim(d);
    const int axis = d - (output.rank() - operand.rank());
    if (axis < 0) continue;
    if (operand.dim(axis) != 1) offset += index * stride;
    stride *= operand.dim(axis);
  }
  return offset;
}

KernelFactory ReferenceElementwise(std::function<double(const std::vector<double>&)> fn) {
  return ReferenceKernel([fn = std::move(fn)](ReferenceCall& call) {
    ReferenceOperand& output = call.output(0);
    std::vector<double> elements(call.num_inputs());
    for (int64_t i = 0; i < output.size(); ++i) {
      for (int k = 0; k < call.num_inputs(); ++k) {
        const ReferenceOperand& input = call.input(k);
        elements[k] = input[BroadcastOffset(input.shape, output.shape, i)];
      }
      output[i] = fn(elements);
    }
    return absl::OkStatus();
  });
}

}  // namespace weft::cpu
