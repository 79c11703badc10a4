#include "distributed/memory_certificate.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/byte_quantity.h"

namespace weft {
namespace {

constexpr int64_t kLeastNamed = int64_t{64} << 10;

}  // namespace

int64_t ConnectionBytes(int64_t early_bytes, int64_t limit) {
  const int64_t ahead = std::min(limit, early_bytes);
  return kConnectionBytes + ahead + std::min(ahead, kWindowBytes);
}

std::string DescribeMemory(const MemoryCertificate& certificate) {
  std::vector<std::pair<const char*, int64_t>> parts = {
      {"variables", certificate.variable_bytes},    {"arena", certificate.arena_bytes},
      {"constants", certificate.constant_bytes},    {"packed weights", certificate.packed_bytes},
      {"staging", certificate.staging_bytes},       {"data", certificate.input_bytes},
      {"checkpoint", certificate.checkpoint_bytes}, {"transport", certificate.transport_bytes},
      {"process", certificate.process_bytes},       {"loading", certificate.loading_bytes}};
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> texts;
  for (const auto& [name, bytes] : parts) {
    if (bytes >= kLeastNamed) texts.push_back(absl::StrCat(name, " ", ByteQuantity(bytes)));
  }
  return absl::StrCat(ByteQuantity(certificate.total()), texts.empty() ? "" : ": ",
                      absl::StrJoin(texts, ", "));
}

absl::Status CheckFits(const std::string& worker, const MemoryCertificate& certificate,
                       const MemoryLimit& limit) {
  if (limit.bytes <= 0 || certificate.total() <= limit.bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      worker, " may have ", ByteQuantity(limit.bytes), " of memory (", limit.source, ") and needs ",
      DescribeMemory(certificate),
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
    share.need += worker.certificate.total();
    share.needs.push_back(
        absl::StrCat(worker.worker, " needs ", DescribeMemory(worker.certificate)));
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
