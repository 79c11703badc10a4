// Kernel: how an op is computed on one device kind. Two phases: a factory prepares it once per
// (node, shapes), Run is called many times and neither allocates nor decides anything.
//
//   WEFT_REGISTER_KERNEL("", "Relu", DeviceKind::kCpu, PrepareRelu);
#ifndef WEFT_OPS_KERNEL_H_
#define WEFT_OPS_KERNEL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/op_schema.h"
#include "tensor/device.h"

namespace weft {

// What Run gets. Pointers are 64-byte aligned and in the device's memory; null for absent operands.
// Zero-element operands may be null.
struct KernelContext {
  const void* const* inputs = nullptr;
  void* const* outputs = nullptr;
  void* workspace = nullptr;  // workspace_bytes() of it
  Stream* stream = nullptr;
  int64_t step = 0;
  // The micro-batch that the node runs for, of those of the step, and the samples of the step's
  // batch that are its. Nodes that run once per step get one of one, without samples.
  int micro_batch = 0;
  int micro_batches = 1;
  int64_t first_sample = 0;
  int64_t samples = 0;
  // `step` in memory of the device, as work of `stream` finds it: for a StepReadingKernel. Null
  // where there is none; `step` is always there.
  const int64_t* step_on_device = nullptr;
};

// Prepared for fixed shapes, dtypes and attributes. Used by one stream at a time (several
// instructions of one program may share it). Must not throw.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual absl::Status Run(const KernelContext& context) = 0;
  // Scratch memory that Run wants, from the program's arena.
  virtual size_t workspace_bytes() const { return 0; }
  // Memory of its own that it keeps from run to run, such as packed weights.
  virtual size_t retained_bytes() const { return 0; }
  // True if Run reads KernelContext::step, the host's, though it was given step_on_device. Devices
  // that record repeat runs of other kernels, with the `step` of then. Asked when a program is
  // compiled, and again after the first run, which may turn false into true.
  virtual bool depends_on_step() const { return false; }
};

// A kernel whose launches read *KernelContext::step_on_device, where that is given: its runs are
// recorded, and each has the numbers of its step.
class StepReadingKernel : public Kernel {};

// A kernel that can run as one with those of other nodes, such as the updates of all parameters.
// Has no workspace and does not ask for micro-batches.
class JoinableKernel : public Kernel {
 public:
  // Kernels of one program with equal keys may be joined.
  virtual std::string group_key() const = 0;
  // A kernel that does what all of `members` do, to the same bits, in any order or at once. Its
  // operands are theirs, those of one member after those of the other. It may borrow the members.
  // REQUIRES: two or more, this one among them, with one key, none of which makes what another one
  // reads or writes.
  virtual absl::StatusOr<std::unique_ptr<Kernel>> Join(
      const std::vector<JoinableKernel*>& members) const = 0;
};

// Where an operand lies in its global tensor: equal to the local shape and zeros when not sharded.
struct OperandSlice {
  Shape global_shape;
  std::vector<int64_t> offset;  // of the first element, per axis
};

// What a factory sees: the node with concrete local shapes.
class PrepareContext : public NodeView {
 public:
  virtual const OperandSlice& InputSlice(int i) const = 0;
  virtual const OperandSlice& OutputSlice(int i) const = 0;
  virtual Device& device() const = 0;
  // Threads the kernel may use, >= 1.
  virtual int threads() const = 0;
  // Same bits whatever the number of ranks: one algorithm, fixed order of sums.
  virtual bool strict() const = 0;
  // Input i never changes between runs (a constant or frozen weight): it may be packed once.
  virtual bool InputIsConstant(int i) const = 0;
  // Products of float32 may round their operands to TF32, where the device has it. Never with
  // strict().
  virtual bool tf32() const { return false; }
  // Convolutions of a CUDA device go through cuDNN where it can compute them. A device without
  // cuDNN is then an error.
  virtual bool uses_cudnn() const { return false; }
  // InvalidArgument / Unimplemented with node name, op, dtypes and shapes in the text.
  absl::Status InvalidArgument(const std::string& message) const;
  absl::Status Unimplemented(const std::string& message) const;
};
using KernelFactory = std::function<absl::StatusOr<std::unique_ptr<Kernel>>(const PrepareContext&)>;

// Global, filled by static registration. A factory returns Unimplemented for dtypes it does not do.
// The "reference" set holds the plain float64-capable kernels that tests check the others against.
class KernelRegistry {
 public:
  static KernelRegistry& Global();
  static KernelRegistry& Reference();
  absl::Status Register(std::string_view domain, std::string_view op, DeviceKind device,
                        KernelFactory factory);
  // Null when there is none. A fake device uses the CPU's kernels.
  const KernelFactory* Find(std::string_view domain, std::string_view op, DeviceKind device) const;
  // Operators that have one for the device; 0: this program knows nothing of the device's kernels.
  int Count(DeviceKind device) const;
  // Prepares, or says Unimplemented with op, dtypes, shapes, device, node.
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(const PrepareContext& context) const;

 private:
  std::map<std::tuple<std::string, std::string, DeviceKind>, KernelFactory> factories_;
};

namespace internal {
bool RegisterKernelOrDie(KernelRegistry& registry, std::string_view domain, std::string_view op,
                         DeviceKind device, KernelFactory factory);
}

#define WEFT_REGISTER_KERNEL(domain, op, device, factory) \
  WEFT_REGISTER_KERNEL_AT(__COUNTER__, Global, domain, op, device, factory)
// Reference kernels run on the CPU for any floating dtype, float64 included.
#define WEFT_REGISTER_REFERENCE_KERNEL(domain, op, factory) \
  WEFT_REGISTER_KERNEL_AT(__COUNTER__, Reference, domain, op, ::weft::DeviceKind::kCpu, factory)
#define WEFT_REGISTER_KERNEL_AT(n, set, domain, op, device, factory) \
  WEFT_REGISTER_KERNEL_NAMED(n, set, domain, op, device, factory)
#define WEFT_REGISTER_KERNEL_NAMED(n, set, domain, op, device, factory)                       \
  [[maybe_unused]] static const bool weft_kernel_##n = ::weft::internal::RegisterKernelOrDie( \
      ::weft::KernelRegistry::set(), domain, op, device, factory)

// A Kernel around a callable `absl::Status(const KernelContext&)`.
template <typename Fn>
std::unique_ptr<Kernel> MakeKernel(Fn fn, size_t workspace_bytes = 0) {
  class Lambda final : public Kernel {
   public:
    Lambda(Fn fn, size_t bytes) : fn_(std::move(fn)), bytes_(bytes) {}
    absl::Status Run(const KernelContext& context) override { return fn_(context); }
    size_t workspace_bytes() const override { return bytes_; }

   private:
    Fn fn_;
    size_t bytes_;
  };
  return std::make_unique<Lambda>(std::move(fn), workspace_bytes);
}

}  // namespace weft

#endif  // WEFT_OPS_KERNEL_H_
