// A small job for tests of workers: every rank brings one sample, the sums are all-reduced.
#ifndef WEFT_DISTRIBUTED_TESTING_SUM_JOB_H_
#define WEFT_DISTRIBUTED_TESTING_SUM_JOB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "executor/interfaces/input_source.h"
#include "graph/partition.h"

namespace weft::testing {

// The token of workers that tests start by hand.
inline constexpr char kTestToken[] = "0123456789abcdef0123456789abcdef";

inline constexpr int64_t kSumJobWidth = 3;

// JobMembership::job_digest of the job, where it can be resumed; and the key under which the notes
// of its runs have the steps that were done before.
inline constexpr uint64_t kSumJobDigest = 4713;
inline constexpr char kSumJobStep[] = "step";

// Data-parallel partitions of `ranks`: sample r is (r + 1) x (1, 2, 3); sum = all-reduced 2 x
// sample; w -= rate x sum. Reports "loss", the first element of the sum: ranks x (ranks + 1). Step
// input "rate".
std::vector<Partition> SumJobPartitions(int ranks);
// The same, whose ranks agree on each step.
std::vector<Partition> CommittingSumJob(int ranks);

// One of them with something in each field that has a place in files and messages: shards of both
// axes, a channel whose value needs quotes. It keeps the laws of
// graph/schedule/partition_verifier.h.
Partition PartitionWithEveryField();

// The samples above, whatever the description.
absl::StatusOr<std::unique_ptr<InputSource>> OpenSumJobInput(const std::string& data);

}  // namespace weft::testing

#endif  // WEFT_DISTRIBUTED_TESTING_SUM_JOB_H_
