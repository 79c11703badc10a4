#include "distributed/coordinator_epoch.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr char kDeposedText[] = "this coordinator has a successor: its epoch is ";

}  // namespace

uint64_t NextEpoch(const std::vector<WorkerClient*>& clients, uint64_t known) {
  uint64_t highest = known;
  for (const WorkerClient* const client : clients) highest = std::max(highest, client->epoch());
  return highest + 1;
}

absl::Status DeposedError(uint64_t own, uint64_t accepted, const std::string& who) {
  return absl::PermissionDeniedError(absl::StrCat(
      kDeposedText, own, ", and ", who, " has accepted a coordinator of epoch ", accepted,
      ", which goes on with the job; this one ends, and writes nothing more"));
}

bool IsDeposed(const absl::Status& status) {
  return absl::IsPermissionDenied(status) && absl::StrContains(status.message(), kDeposedText);
}

}  // namespace weft
