// KeyRing: the keys of a process while it runs.
#ifndef WEFT_DISTRIBUTED_KEYS_KEY_RING_H_
#define WEFT_DISTRIBUTED_KEYS_KEY_RING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/keys/key_folder.h"
#include "platform/file_descriptor.h"
#include "platform/mutex.h"

namespace weft {

// Reads a folder of keys, and again whenever a file in it has changed. New keys count from then on
// if they pass ReadKeyFolder; else the earlier ones stay, and the log says why. Thread-safe.
//
// Libraries that read keys from files get paths that lead to memory of this process: what lies
// there was checked, changes at once, and is nowhere on a disk but in the folder.
class KeyRing {
 public:
  // How often it looks.
  static constexpr absl::Duration kInterval = absl::Milliseconds(500);

  // The errors of ReadKeyFolder.
  static absl::StatusOr<std::shared_ptr<KeyRing>> Open(const std::string& folder,
                                                       absl::Duration interval = kInterval);
  ~KeyRing();
  KeyRing(const KeyRing&) = delete;
  KeyRing& operator=(const KeyRing&) = delete;

  const std::string& folder() const { return folder_; }
  // Never null.
  std::shared_ptr<const KeySet> Current() const;
  // Files with the current identity_pem and authority_pem, for this process alone and as long as
  // this object lives.
  const std::string& identity_path() const { return identity_path_; }
  const std::string& authority_path() const { return authority_path_; }
  // Looks now. OK also where nothing has changed; else the reason why the earlier keys stay.
  absl::Status Reload();
  // How many times keys have changed.
  int64_t changes() const;

 private:
  explicit KeyRing(std::string folder) : folder_(std::move(folder)) {}
  absl::Status Publish(KeySet keys) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Watch(absl::Duration interval);

  const std::string folder_;
  FileDescriptor identity_file_;
  FileDescriptor authority_file_;
  std::string identity_path_;
  std::string authority_path_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const KeySet> keys_ ABSL_GUARDED_BY(mutex_);
  std::string seen_ ABSL_GUARDED_BY(mutex_);  // what told the files' versions apart
  int64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_KEYS_KEY_RING_H_
