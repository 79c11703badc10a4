#include "ops/kernels/cuda/fusion/kernel_cache.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "platform/checksum.h"
#include "platform/log.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

constexpr std::string_view kFileSuffix = ".kernel";
constexpr size_t kNameDigits = 16;

// The first bytes of a file. Numbers are as this machine has them: another's do not fit.
struct FileHeader {
  char magic[8] = {'W', 'E', 'F', 'T', 'K', 'R', 'N', '1'};
  uint64_t key_bytes = 0;
  uint64_t code_bytes = 0;
  uint64_t checksum = 0;
};
static_assert(sizeof(FileHeader) == 32);

uint64_t ChecksumOf(std::string_view bytes) {
  return Checksum(std::as_bytes(std::span<const char>(bytes.data(), bytes.size())));
}

std::string FileText(const std::string& key, const std::string& code) {
  FileHeader header;
  header.key_bytes = key.size();
  header.code_bytes = code.size();
  header.checksum = ChecksumOf(absl::StrCat(key, code));
  std::string text(sizeof(header), '\0');
  std::memcpy(text.data(), &header, sizeof(header));
  absl::StrAppend(&text, key, code);
  return text;
}

// Nothing where the file is not a whole one of this key.
std::optional<std::string> CodeIn(const std::string& file, const std::string& key) {
  FileHeader header;
  if (file.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, file.data(), sizeof(header));
  const std::string_view rest = std::string_view(file).substr(sizeof(header));
  const bool fits = std::memcmp(header.magic, FileHeader().magic, sizeof(header.magic)) == 0 &&
                    header.key_bytes == key.size() && rest.size() >= key.size() &&
                    header.code_bytes == rest.size() - key.size() &&
                    rest.substr(0, key.size()) == key && header.checksum == ChecksumOf(rest);
  if (!fits) return std::nullopt;
  return std::string(rest.substr(key.size()));
}

bool IsOfACache(std::string_view name) {
  if (PrivateFolder::IsUnfinished(name)) return true;
  return name.size() == kNameDigits + kFileSuffix.size() && name.ends_with(kFileSuffix) &&
         name.find_first_not_of("0123456789abcdef") == kNameDigits;
}

}  // namespace

std::string KernelCacheFolder(const std::function<const char*(const char* name)>& variable) {
  if (const char* const own = variable("WEFT_KERNEL_CACHE"); own != nullptr) return own;
  // An absolute path, as the XDG Base Directory Specification asks.
  if (const char* const cache = variable("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/') {
    return absl::StrCat(cache, "/weft/kernels");
  }
  const char* const home = variable("HOME");
  return home == nullptr || home[0] != '/' ? "" : absl::StrCat(home, "/.cache/weft/kernels");
}

std::string KernelCache::FileNameOf(const std::string& key) {
  return absl::StrCat(absl::Hex(ChecksumOf(key), absl::kZeroPad16), ".kernel");
}

void KernelCache::Warn(const absl::Status& status) {
  if (std::exchange(has_warned_, true)) return;
  Log(LogLevel::kWarning,
      "compiled kernels are not kept on the disk: ", std::string(status.message()));
}

PrivateFolder* KernelCache::Folder() {
  if (!std::exchange(is_opened_, true)) {
    absl::StatusOr<std::unique_ptr<PrivateFolder>> folder = open_();
    if (folder.ok()) folder_ = *std::move(folder);
    if (!folder.ok()) Warn(folder.status());
  }
  return folder_.get();
}

std::optional<std::string> KernelCache::Find(const std::string& key) {
  const MutexLock lock(mutex_);
  PrivateFolder* const folder = Folder();
  if (folder == nullptr) return std::nullopt;
  const std::string name = FileNameOf(key);
  const absl::StatusOr<std::string> file = folder->Read(name, maximum_bytes_);
  if (!file.ok()) {
    if (file.status().code() != absl::StatusCode::kNotFound) Warn(file.status());
    return std::nullopt;
  }
  std::optional<std::string> code = CodeIn(*file, key);
  // In a folder that cannot be written, files keep their times.
  if (code.has_value()) folder->MarkUsed(name).IgnoreError();
  return code;
}

void KernelCache::Store(const std::string& key, const std::string& code) {
  const MutexLock lock(mutex_);
  PrivateFolder* const folder = Folder();
  if (folder == nullptr) return;
  const std::string file = FileText(key, code);
  if (static_cast<int64_t>(file.size()) > maximum_bytes_) return;
  const std::string name = FileNameOf(key);
  absl::Status status = folder->Write(name, file);
  if (status.ok()) status = RemoveUnused(name);
  if (!status.ok()) Warn(status);
}

absl::Status KernelCache::RemoveUnused(const std::string& kept) {
  WEFT_ASSIGN_OR_RETURN(std::vector<PrivateFolder::Entry> entries, folder_->List());
  std::erase_if(entries, [](const PrivateFolder::Entry& entry) { return !IsOfACache(entry.name); });
  std::sort(entries.begin(), entries.end(),
            [](const PrivateFolder::Entry& a, const PrivateFolder::Entry& b) {
              return std::pair(a.used, a.name) < std::pair(b.used, b.name);
            });
  int64_t bytes = 0;
  for (const PrivateFolder::Entry& entry : entries) bytes += entry.bytes;
  for (const PrivateFolder::Entry& entry : entries) {
    if (bytes <= maximum_bytes_) break;
    if (entry.name == kept) continue;
    const absl::Status removed = folder_->Remove(entry.name);
    // Another process may have removed it.
    if (!removed.ok() && removed.code() != absl::StatusCode::kNotFound) return removed;
    bytes -= entry.bytes;
  }
  return absl::OkStatus();
}

}  // namespace weft::cuda
