// Epochs of coordinators: which of two coordinators of a job is the later one.
#ifndef WEFT_DISTRIBUTED_COORDINATOR_EPOCH_H_
#define WEFT_DISTRIBUTED_COORDINATOR_EPOCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "distributed/worker_client.h"

namespace weft {

// A coordinator takes a higher number than any that its workers have accepted, before it joins
// them, and keeps it to its end. A worker that has accepted an epoch takes no call of a lower one.
// 0 is no epoch.

// What comes after all that these workers have accepted, and after `known`.
uint64_t NextEpoch(const std::vector<WorkerClient*>& clients, uint64_t known = 0);

// PermissionDenied: the coordinator of epoch `own` has a successor, of epoch `accepted`, which
// `who` ("the worker") has accepted.
absl::Status DeposedError(uint64_t own, uint64_t accepted, const std::string& who);
// Whether the error says so, also after it has come over the wire or was annotated.
bool IsDeposed(const absl::Status& status);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_COORDINATOR_EPOCH_H_
