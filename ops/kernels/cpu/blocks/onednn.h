// The thin layer between kernels and oneDNN: primitives prepared once and run without an allocation
// of ours, its errors as Status, its threads within the kernel's budget.
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_ONEDNN_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_ONEDNN_H_

#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "ops/kernel.h"
#include "ops/kernels/cpu/blocks/workspace.h"
#include "tensor/tensor.h"

namespace weft::cpu {

// The process's CPU engine and a stream on it. Both live for ever and may be used by any thread: on
// the CPU a stream holds no state of its own.
const dnnl::engine& OnednnEngine();
dnnl::stream& OnednnStream();

// Threads that oneDNN may use for a kernel: one in strict mode, since its sums depend on the
// number.
int OnednnThreads(const PrepareContext& context);

// While it lives, OpenMP regions started by the calling thread have `threads` threads. A primitive
// is created and run under the same number.
class ThreadBudget {
 public:
  explicit ThreadBudget(int threads);
  ~ThreadBudget();
  ThreadBudget(const ThreadBudget&) = delete;
  ThreadBudget& operator=(const ThreadBudget&) = delete;

 private:
  int saved_;
  bool changed_;
};

// Calls `prepare()`, which returns Status or StatusOr, and turns an exception of oneDNN into
// Unimplemented with the node's name.
template <typename Fn>
auto CatchOnednn(const PrepareContext& context, Fn&& prepare) -> decltype(prepare()) {
  try {
    return prepare();
  } catch (const dnnl::error& error) {
    return context.Unimplemented(std::string("oneDNN refuses: ") + error.what());
  }
}

// Makes oneDNN generate the code of its classic product of float32 matrices, once per process: 7
// MiB and up to 0.1 s. oneDNN would do so at the first run, after the memory of the process was
// measured (distributed/memory_requirement.h). Thread-safe. OnednnCall calls it where a primitive
// needs it.
void MakeClassicProductCode();

// Whether the processor multiplies bfloat16 itself, so that oneDNN is fast with it.
bool OnednnMultipliesBfloat16();

// float32 or bfloat16, whichever `dtype` is.
dnnl::memory::data_type OnednnType(DType dtype);

// Attributes with scratch memory supplied by the caller.
dnnl::primitive_attr UserScratchpad();

// A dense row-major description.
dnnl::memory::desc PlainDesc(const Shape& shape,
                             dnnl::memory::data_type type = dnnl::memory::data_type::f32);
dnnl::memory::dims ToDims(const Shape& shape);

// A primitive and its arguments. Copies share the primitive. Thread-compatible.
class OnednnCall {
 public:
  using Argument = std::pair<int, dnnl::memory::desc>;  // DNNL_ARG_..., layout

  OnednnCall() = default;
  // May throw dnnl::error.
  OnednnCall(dnnl::primitive primitive, const std::vector<Argument>& arguments);

  bool valid() const { return primitive_.get(true) != nullptr; }
  // One pointer per argument, in their order. Internal when oneDNN fails. Runs under the
  // ThreadBudget of the caller.
  absl::Status Run(std::span<const void* const> pointers);
  absl::Status Run(std::initializer_list<const void*> pointers) {
    return Run(std::span<const void* const>(pointers.begin(), pointers.size()));
  }

 private:
  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
  std::vector<const void*> bound_;  // the pointers of the last run: mostly the next one's, too
};

// A reorder between two layouts of the same elements, or nothing when they are the same.
class OnednnReorder {
 public:
  OnednnReorder() = default;
  // May throw dnnl::error.
  OnednnReorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to);
  bool needed() const { return call_.valid(); }
  // REQUIRES: needed().
  absl::Status Run(const void* from, void* to) { return call_.Run({from, to}); }

 private:
  OnednnCall call_;
};

// Memory of a kernel's own that outlives runs: weights in the layout a primitive wants.
class PackedWeights {
 public:
  PackedWeights() = default;
  // Packs from `plain` to `packed` layout on the first call of Get, once. Allocates now. May throw
  // dnnl::error.
  static absl::StatusOr<PackedWeights> Create(const dnnl::memory::desc& plain,
                                              const dnnl::memory::desc& packed);
  // What is packed is not read again: where it lies in a mapped file, its pages are released.
  absl::StatusOr<const void*> Get(const void* plain);
  size_t bytes() const { return storage_.valid() ? storage_.bytes() : 0; }

 private:
  OnednnReorder reorder_;
  Tensor storage_;
  size_t plain_bytes_ = 0;
  bool filled_ = false;
};

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_ONEDNN_H_
