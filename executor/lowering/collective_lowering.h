// Lowers collectives: lays their operands side by side and opens them at the communicator. Internal
// to executor/.
#ifndef WEFT_EXECUTOR_LOWERING_COLLECTIVE_LOWERING_H_
#define WEFT_EXECUTOR_LOWERING_COLLECTIVE_LOWERING_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "executor/lowering/lowering_state.h"

namespace weft {

// A view on the state; made where needed.
class CollectiveLowering {
 public:
  explicit CollectiveLowering(LoweringState& state) : state_(state) {}

  // Finds the all-reduces of the end graph that sum accumulations only: they may run beside the
  // micro-batches. Reserves their regions, so that the sums are made in place.
  absl::Status ReserveAsync();
  // A block's sum is final: its collective may start when all of its blocks are.
  void BlockIsReady(const std::string& end_input);
  // Any collective node, at its place in the compute list (for an async one: binds its outputs).
  absl::Status Lower(Scope& scope, const Node& node);
  // Lifetimes of the async collectives' buffers: from the first signal to the wait.
  void TouchAsync();

 private:
  // Regions of an all-reduce: slot(block, tensor), in memory order block by block.
  struct Region {
    std::vector<BufferIndex> slots;
    std::vector<BufferIndex> scratch;
    int tensors = 0;
    int blocks = 1;
    int64_t block_elements = 0;
    Communicator::CollectiveHandle handle = -1;
    DType dtype = DType::kInvalid;
  };
  absl::StatusOr<Region> ReserveAllReduce(const Graph& graph, const Node& node);
  // An opened collective of this rank.
  struct Opened {
    Communicator::CollectiveHandle handle = -1;
    int member = 0;  // this rank's position in the group
    int64_t element_bytes = 0;
  };
  // `buffers` are the first ones of the schedule; the scratch is added to them.
  absl::StatusOr<Opened> Open(const Graph& graph, const Node& node,
                              std::vector<BufferIndex>& buffers);
  absl::Status LowerAllReduce(Scope& scope, const Node& node);
  absl::Status LowerAllGather(Scope& scope, const Node& node);
  absl::Status LowerReduceScatter(Scope& scope, const Node& node);
  absl::Status LowerAllToAll(Scope& scope, const Node& node);
  absl::Status LowerBroadcast(Scope& scope, const Node& node);
  void EmitPack(const Node& node, const Scope& scope, BufferIndex from, BufferIndex to,
                const CopyRegion& region);
  // Between a whole tensor and its shards one after the other.
  void PackShards(const Node& node, const Scope& scope, BufferIndex whole, BufferIndex packed,
                  const std::vector<CopyRegion>& shards);
  void UnpackShards(const Node& node, const Scope& scope, BufferIndex packed, BufferIndex whole,
                    const std::vector<CopyRegion>& shards);
  void EmitCopy(const Node& node, const Scope& scope, BufferIndex from, BufferIndex to,
                int64_t bytes);
  void EmitRun(const Node& node, const Scope& scope, Communicator::CollectiveHandle handle,
               std::vector<BufferIndex> buffers);
  absl::StatusOr<BufferIndex> Input(Scope& scope, const Node& node, int i);

  LoweringState& state_;
  bool beside_compute_ = false;  // what is opened is for the communication thread
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_COLLECTIVE_LOWERING_H_
