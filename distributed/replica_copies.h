// Copies of variables: what several replicas of a model have in common, and whether it is equal.
#ifndef WEFT_DISTRIBUTED_REPLICA_COPIES_H_
#define WEFT_DISTRIBUTED_REPLICA_COPIES_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/coordinator.h"
#include "graph/plan.h"

namespace weft {

// The ranks that have the same part of a variable, in ascending order; two at least.
struct VariableCopies {
  std::string variable;
  std::vector<int> ranks;
};

// Of these variables. Ranks that differ in their place on the data axis alone have copies, but for
// what ZeRO splits over that axis. A replicated variable of several shards counts once for each:
// shards compute its updates each for itself, maybe in another order. `mesh` is that of the
// programs that the coordinator has added.
std::vector<VariableCopies> FindCopies(const Coordinator& coordinator, const Mesh& mesh,
                                       const std::set<std::string>& variables);

// As the ranks have answered.
struct CopyDigests {
  std::vector<std::string> arithmetic;         // by rank; "" = it was not asked
  std::vector<std::vector<uint64_t>> digests;  // by variable and member of VariableCopies::ranks
};

// Asks all ranks that have copies for their digests, in parallel; no step runs meanwhile. DataLoss
// for an answer to another number of variables; the errors are else those of the calls.
absl::StatusOr<CopyDigests> DigestCopies(Coordinator& coordinator,
                                         const std::vector<VariableCopies>& copies);

// Copies that are not equal.
struct DivergedCopies {
  std::string variable;
  // All whose arithmetic is the same, ascending.
  std::vector<int> ranks;
  // Those of them that differ from what more than half of them have; all, where there is no such
  // majority.
  std::vector<int> wrong;
  int right = -1;  // the first of the majority; -1: there is none
};

// Compares those that must be equal: ranks of the same arithmetic (VariableDigests). In the order
// of `copies`.
std::vector<DivergedCopies> CompareCopies(const std::vector<VariableCopies>& copies,
                                          const CopyDigests& answers);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_REPLICA_COPIES_H_
