// A oneDNN primitive whose operands may want other layouts than the row-major ones of the graph.
#ifndef WEFT_OPS_KERNELS_CPU_ONEDNN_STAGED_H_
#define WEFT_OPS_KERNELS_CPU_ONEDNN_STAGED_H_

#include <vector>

#include "ops/kernels/cpu/onednn.h"

namespace weft::cpu {

// Reorders inputs into workspace, runs the primitive, reorders outputs from workspace; constant
// inputs are packed once. Add the operands, then the primitive. All of it may throw dnnl::error.
class StagedPrimitive final : public Kernel {
 public:
  // `threads`: what the primitive descriptor was made under.
  explicit StagedPrimitive(int threads) : threads_(threads) {}

  // Input `index` of the node is the primitive's argument `argument`.
  absl::Status AddInput(int index, int argument, const dnnl::memory::desc& plain,
                        const dnnl::memory::desc& wanted, bool constant);
  void AddOutput(int index, int argument, const dnnl::memory::desc& plain,
                 const dnnl::memory::desc& wanted);
  void SetPrimitive(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad);

  absl::Status Run(const KernelContext& context) override;
  size_t workspace_bytes() const override { return workspace_.total(); }
  size_t retained_bytes() const override;

 private:
  struct Operand {
    Operand(int node_index, size_t position) : index(node_index), argument(position) {}
    int index;
    size_t argument;  // position in arguments_
    OnednnReorder reorder;
    size_t offset = 0;    // in the workspace, where it is reordered
    bool packed = false;  // by `weights`
    PackedWeights weights;
  };

  const int threads_;
  WorkspaceLayout workspace_;
  size_t scratchpad_ = 0;
  std::vector<Operand> inputs_;
  std::vector<Operand> outputs_;
  std::vector<OnednnCall::Argument> arguments_;
  std::vector<const void*> pointers_;  // of this run, one per argument and the scratchpad
  OnednnCall call_;
};

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_ONEDNN_STAGED_H_
