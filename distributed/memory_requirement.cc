#include "distributed/memory_requirement.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/byte_quantity.h"

namespace weft {
namespace {

constexpr int64_t kMinNamed = int64_t{64} << 10;

using MemoryParts = std::vector<std::pair<const char*, int64_t>>;

std::string PartsText(int64_t total, MemoryParts parts) {
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> texts;
  for (const auto& [name, bytes] : parts) {
    if (bytes >= kMinNamed) texts.push_back(absl::StrCat(name, " ", ByteQuantity(bytes)));
  }
  return absl::StrCat(ByteQuantity(total), texts.empty() ? "" : ": ", absl::StrJoin(texts, ", "));
}

}  // namespace

int64_t ConnectionBytes(int64_t unexpected_bytes, int64_t limit) {
  constexpr int64_t kCopies = 16;
  const int64_t ahead = std::min(limit, unexpected_bytes);
  const int64_t held = std::min(kConnectionBytes, kIdleConnectionBytes + kCopies * ahead);
  return held + ahead + std::min(ahead, kWindowBytes);
}

int64_t ProcessGrowthBytes(int64_t held_bytes, int threads) {
  constexpr int64_t kAtFirst = int64_t{4} << 20;
  constexpr int64_t kHeldPerByte = 64;
  const int64_t max_growth = kProcessGrowthBytes + std::max(0, threads - 2) * kThreadGrowthBytes;
  return std::min(max_growth, kAtFirst + held_bytes / kHeldPerByte);
}

int64_t PageTableBytes(int64_t bytes) {
  constexpr int64_t kBytesOfEntry = 4096 / 8;
  const int64_t tables = (bytes + kBytesOfEntry - 1) / kBytesOfEntry;
  return tables + (tables + kBytesOfEntry - 1) / kBytesOfEntry;
}

std::string DescribeMemory(const MemoryRequirement& requirement) {
  const bool here = !requirement.on_device;
  const MemoryParts parts = {{"variables", here ? requirement.variable_bytes : 0},
                             {"arena", here ? requirement.arena_bytes : 0},
                             {"constants", requirement.constant_bytes},
                             {"packed weights", here ? requirement.packed_bytes : 0},
                             {"staging", requirement.staging_bytes},
                             {"data", requirement.input_bytes},
                             {"checkpoint", requirement.checkpoint_bytes},
                             {"copies of states", requirement.copies_bytes},
                             {"transport", requirement.transport_bytes},
                             {"process", requirement.process_bytes},
                             {"loading", requirement.loading_bytes}};
  return PartsText(requirement.total(), parts);
}

std::string DescribeDeviceMemory(const MemoryRequirement& requirement) {
  if (!requirement.on_device) return ByteQuantity(0);
  return PartsText(requirement.device_total(), {{"variables", requirement.variable_bytes},
                                                {"arena", requirement.arena_bytes},
                                                {"constants", requirement.device_constant_bytes},
                                                {"NCCL", requirement.nccl_bytes},
                                                {"packed weights", requirement.packed_bytes}});
}

absl::Status CheckFitsOnDevice(const std::string& worker, const std::string& device,
                               const MemoryRequirement& requirement, const MemoryLimit& limit) {
  if (limit.bytes <= 0 || requirement.device_total() <= limit.bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      worker, " may have ", ByteQuantity(limit.bytes), " of the memory of ", device, " (",
      limit.source, ") and needs ", DescribeDeviceMemory(requirement),
      "; the job was refused before its first step: give it more devices (pp or tp split the "
      "model, zero=1, 2 or 3 over dp what lives between steps), a smaller --batch, more "
      "--micro-batches, or --recompute"));
}

absl::Status CheckFits(const std::string& worker, const MemoryRequirement& requirement,
                       const MemoryLimit& limit) {
  if (limit.bytes <= 0 || requirement.total() <= limit.bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      worker, " may have ", ByteQuantity(limit.bytes), " of memory (", limit.source, ") and needs ",
      DescribeMemory(requirement),
      "; the job was refused before its first step: give it more workers (pp or tp split the "
      "model, zero=1, 2 or 3 over dp what lives between steps), a smaller --batch or more "
      "--micro-batches, or raise the limit"));
}

absl::Status CheckFitTogether(const std::string& host, const std::vector<WorkerMemory>& workers) {
  struct Share {
    int64_t limit = 0;
    int64_t need = 0;
    std::vector<std::string> needs;
  };
  std::map<std::string, Share> shares;  // by source
  for (const WorkerMemory& worker : workers) {
    Share& share = shares[worker.limit.source];
    share.limit = worker.limit.bytes;
    share.need += worker.requirement.total();
    share.needs.push_back(
        absl::StrCat(worker.worker, " needs ", DescribeMemory(worker.requirement)));
  }
  for (const auto& [source, share] : shares) {
    if (share.limit <= 0 || share.need <= share.limit) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        "the ", share.needs.size(), " workers of host '", host, "' may have ",
        ByteQuantity(share.limit), " of memory together (", source, ") and need ",
        ByteQuantity(share.need), ": ", absl::StrJoin(share.needs, "; "),
        "; the job was refused before its first step: use more hosts, zero=1, 2 or 3, a smaller "
        "--batch or more --micro-batches"));
  }
  return absl::OkStatus();
}

}  // namespace weft
