// Is a partition one that a rank can run? Asked of what comes from other processes and from files.
//
// The laws, checked under these numbers:
//  1. The rank is one of the mesh; threads, batch and micro-batches are in range.
//  2. Micro-batches ascend, have a graph each, and their rows lie in the batch; all that share a
//     graph are equally large.
//  3. Variables have different names, and each local shape is the shard of the global one.
//  4. Each graph keeps the invariants of graph/graph.h, all element types are known, all shapes are
//     concrete and what the shape functions find, and its variables have the types of the rank's
//     shards.
//  5. Every graph input is fed, by a value of its type: an output of the begin graph, a sum, a step
//     input, or the rows of the micro-batch.
//  6. Every sum runs over micro-batches of this rank, all of which make a term of the sum's type.
//  7. No action comes twice; each micro-batch is there; Begin is first and U last.
//  8. A channel has one end here, and the values that are sent or received on it are of its type.
//  9. A collective's group has this rank and none outside the mesh; its steps stay in its buffers
//     and its shard is that of the rank's place. Like a transfer, it has all its outputs and no
//     strings, and stands in no body.
// 10. The guard is a floating scalar of the end graph, and the reports are values of it.
// 11. All of it together fits a memory of 2^60 bytes, so that no sum of sizes overflows.
#ifndef WEFT_GRAPH_SCHEDULE_PARTITION_VERIFIER_H_
#define WEFT_GRAPH_SCHEDULE_PARTITION_VERIFIER_H_

#include "absl/status/status.h"
#include "graph/partition.h"

namespace weft {

// InvalidArgument with "law N: ..." for the first that is broken. Every partition of a training or
// evaluation step keeps them; those of a forward run may leave shapes open and do not. Takes a time
// near that of shape inference.
absl::Status VerifyPartition(const Partition& partition);

}  // namespace weft

#endif  // WEFT_GRAPH_SCHEDULE_PARTITION_VERIFIER_H_
