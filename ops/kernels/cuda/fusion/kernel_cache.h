// KernelCache: compiled texts on the disk, for programs that start later.
#ifndef WEFT_OPS_KERNELS_CUDA_FUSION_KERNEL_CACHE_H_
#define WEFT_OPS_KERNELS_CUDA_FUSION_KERNEL_CACHE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/mutex.h"
#include "platform/private_folder.h"

namespace weft::cuda {

// The folder by the environment: WEFT_KERNEL_CACHE, else $XDG_CACHE_HOME/weft/kernels where that is
// an absolute path, else $HOME/.cache/weft/kernels. "" where WEFT_KERNEL_CACHE is empty, or where
// nothing says a folder: no cache. `variable` gives a variable's value, or null where it is not
// set.
std::string KernelCacheFolder(const std::function<const char*(const char* name)>& variable);

// One file for each key, named by the key's checksum. A file holds a magic number, the sizes, a
// checksum, the whole key and the code:
//
//   "WEFTKRN1" | key bytes (8) | code bytes (8) | XXH3-64 of key and code (8) | key | code
//
// so what is damaged, cut short, or of another key is not there. It is code that is loaded:
// PrivateFolder keeps out what others can have written. The cache never fails. What goes wrong with
// the folder is one warning in the log, and kernels are compiled. Thread-safe; several processes
// can use one folder.
class KernelCache {
 public:
  static constexpr int64_t kMaximumBytes = int64_t{256} << 20;
  using Opener = std::function<absl::StatusOr<std::unique_ptr<PrivateFolder>>()>;

  // `open` is called when the cache is first used. Together its files have `maximum_bytes` or less
  // after each Store; those that were not used for longest go first. Files that are not of a cache
  // do not count, and stay.
  explicit KernelCache(Opener open, int64_t maximum_bytes = kMaximumBytes)
      : open_(std::move(open)), maximum_bytes_(maximum_bytes) {}

  // The code of a key, or nothing.
  std::optional<std::string> Find(const std::string& key);
  // Keeps it, in place of what was there.
  void Store(const std::string& key, const std::string& code);

  // "0123456789abcdef.kernel".
  static std::string FileNameOf(const std::string& key);

 private:
  PrivateFolder* Folder() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RemoveUnused(const std::string& kept) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Warn(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Opener open_;
  const int64_t maximum_bytes_;
  Mutex mutex_;
  bool is_opened_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_warned_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<PrivateFolder> folder_ ABSL_GUARDED_BY(mutex_);  // null: cannot be used
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_FUSION_KERNEL_CACHE_H_
