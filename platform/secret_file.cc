#include "platform/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "platform/file_descriptor.h"
#include "platform/system_error.h"

namespace weft {
namespace {

absl::string_view Text(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

absl::StatusOr<std::string> ReadSecretFile(const std::string& path, int64_t maximum_bytes,
                                           std::string_view what, std::string_view advice) {
  const std::string reading = absl::StrCat("read the ", Text(what));
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.valid()) return SystemError(errno, reading, path);
  struct stat status = {};
  if (fstat(file.get(), &status) != 0) return SystemError(errno, "look at", path);
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(Text(what), " ", absl::Utf8SafeCEscape(path),
                     " is not a regular file that this user alone can read: chmod 600 it",
                     advice.empty() ? "" : ", ", Text(advice)));
  }
  std::string bytes(static_cast<size_t>(maximum_bytes) + 1, '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = read(file.get(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError(errno, reading, path);
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  if (done == bytes.size()) return TooManyBytesError(status.st_size, maximum_bytes, path);
  bytes.resize(done);
  return bytes;
}

}  // namespace weft
