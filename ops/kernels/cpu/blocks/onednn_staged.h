// A oneDNN primitive whose operands may want other layouts than the row-major ones of the graph.
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_ONEDNN_STAGED_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_ONEDNN_STAGED_H_

#include <vector>

#include "ops/kernels/cpu/blocks/onednn.h"

namespace weft::cpu {

// How the work is shared: by oneDNN, or cut along the batch into equal pieces of one thread each.
// The latter does not wait for threads that come late.
struct BatchPieces {
  int threads = 1;
  int64_t count = 1;
  double nanoseconds = 0;  // each, about

  // As many as are worth while for operands [samples, ...], with `nanoseconds` a sample on one
  // thread; one where the samples are too few for the threads. Pieces begin on 64 bytes.
  static BatchPieces For(int threads, const Shape& input, const Shape& output, double nanoseconds,
                         int64_t element_bytes = sizeof(float));
  // Threads that the primitive is made and run under.
  int primitive_threads() const { return count > 1 ? 1 : threads; }
};

// Reorders inputs into workspace, runs the primitive, reorders outputs from workspace; constant
// inputs are packed once. Add the operands, then the primitive. All of it may throw dnnl::error.
class StagedPrimitive final : public Kernel {
 public:
  // The primitive is made for one piece.
  explicit StagedPrimitive(const BatchPieces& pieces) : pieces_(pieces) {}

  // Input `index` of the node is the primitive's argument `argument`. `plain` and `wanted` are of
  // one piece.
  absl::Status AddInput(int index, int argument, const dnnl::memory::desc& plain,
                        const dnnl::memory::desc& wanted, bool constant);
  // The same for what all pieces share.
  absl::Status AddWeights(int index, int argument, const dnnl::memory::desc& plain,
                          const dnnl::memory::desc& wanted, bool constant);
  void AddOutput(int index, int argument, const dnnl::memory::desc& plain,
                 const dnnl::memory::desc& wanted);
  void SetPrimitive(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad);

  absl::Status Run(const KernelContext& context) override;
  size_t workspace_bytes() const override { return workspace_.total(); }
  size_t retained_bytes() const override;

 private:
  // Weights, or a constant input: the same for all pieces once it is staged.
  struct Shared {
    int index;
    size_t argument;  // position in arguments_
    OnednnReorder reorder;
    size_t offset = 0;    // in the workspace, where it is reordered
    bool packed = false;  // by `weights`
    PackedWeights weights;
  };
  // An operand of which each piece has its part.
  struct Part {
    int index;
    size_t argument;
    size_t step;  // bytes from piece to piece
    dnnl::memory::desc from;
    dnnl::memory::desc to;
  };
  // What one thread works with.
  struct Lane {
    struct Staging {
      OnednnReorder reorder;
      size_t offset = 0;
    };
    std::vector<Staging> inputs;
    std::vector<Staging> outputs;
    size_t scratchpad = 0;
    std::vector<const void*> pointers;  // one per argument and the scratchpad
    OnednnCall call;
    absl::Status status;
  };

  absl::Status StageShared(const KernelContext& context);
  absl::Status RunPiece(const KernelContext& context, Lane& lane, int64_t piece);

  const BatchPieces pieces_;
  WorkspaceLayout workspace_;
  std::vector<Shared> shared_;
  std::vector<Part> inputs_;
  std::vector<Part> outputs_;
  std::vector<OnednnCall::Argument> arguments_;
  std::vector<Lane> lanes_;
};

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_ONEDNN_STAGED_H_
