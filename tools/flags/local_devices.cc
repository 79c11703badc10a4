#include "tools/flags/local_devices.h"

#include <cstddef>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "platform/status_macros.h"
#include "tensor/device_id.h"

namespace weft {

absl::Status SetLocalDevices(const std::string& text, ClusterSpec& cluster) {
  if (text.empty()) return absl::OkStatus();
  const std::vector<std::string> names = absl::StrSplit(text, ',');
  const size_t workers = cluster.workers.size();
  if (names.size() != 1 && names.size() != workers) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device ", text, " names ", names.size(), " devices for ", workers,
                     workers == 1 ? " worker" : " workers", "; name one for all, or one for each"));
  }
  int next_gpu = 0;
  for (size_t i = 0; i < workers; ++i) {
    const std::string& name = names[names.size() == 1 ? 0 : i];
    const absl::StatusOr<DeviceId> id = ParseDevice(name);
    if (!id.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--device ", text, ": ", std::string(id.status().message())));
    }
    WorkerSpec& worker = cluster.workers[i];
    worker.device = id->kind;
    worker.device_index = id->index;
    if (id->kind != DeviceKind::kCuda) continue;
    if (!absl::StrContains(name, ':')) worker.device_index = next_gpu;
    next_gpu = worker.device_index + 1;
  }
  return absl::OkStatus();
}

}  // namespace weft
