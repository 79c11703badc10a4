#include "platform/system_error.h"

#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace weft {
namespace {

struct Meaning {
  absl::StatusCode code;
  const char* advice;
};

Meaning MeaningOf(int error_number) {
  switch (error_number) {
    case ENOENT:
      return {absl::StatusCode::kNotFound, "check the path, and that its folder exists"};
    case ENOTDIR:
      return {absl::StatusCode::kNotFound, "a part of the path is a file: check the path"};
    case EEXIST:
      return {absl::StatusCode::kAlreadyExists, "remove it or choose another name"};
    case EISDIR:
      return {absl::StatusCode::kInvalidArgument, "give the path of a file, not of a folder"};
    case ENAMETOOLONG:
    case EINVAL:
    case ELOOP:
      return {absl::StatusCode::kInvalidArgument, "choose another path"};
    case EACCES:
    case EPERM:
      return {absl::StatusCode::kPermissionDenied, "check its permissions, or those of its folder"};
    case EROFS:
      return {absl::StatusCode::kPermissionDenied, "choose a folder on a disk that can be written"};
    case ENOSPC:
    case EDQUOT:
      return {absl::StatusCode::kResourceExhausted, "free space on that disk or choose another"};
    case EFBIG:
      return {absl::StatusCode::kResourceExhausted, "raise the limit of file sizes (ulimit -f)"};
    case EMFILE:
    case ENFILE:
      return {absl::StatusCode::kResourceExhausted, "raise the limit of open files (ulimit -n)"};
    case EAGAIN:
      return {absl::StatusCode::kResourceExhausted, "raise the limit of processes (ulimit -u)"};
    case ENOMEM:
      return {absl::StatusCode::kResourceExhausted, "free memory"};
    case EIO:
      return {absl::StatusCode::kDataLoss, "the disk reported a failure: see dmesg"};
    default:
      return {absl::StatusCode::kUnknown, "see the system's documentation of this error"};
  }
}

}  // namespace

absl::Status SystemError(int error_number, std::string_view action, std::string_view path) {
  const Meaning meaning = MeaningOf(error_number);
  return absl::Status(
      meaning.code,
      absl::StrCat("cannot ", absl::string_view(action.data(), action.size()), " \"",
                   absl::Utf8SafeCEscape(absl::string_view(path.data(), path.size())),
                   "\": ", std::generic_category().message(error_number), "; ", meaning.advice));
}

absl::Status ClosedFileError(std::string_view path) {
  return absl::FailedPreconditionError(
      absl::StrCat("\"", absl::Utf8SafeCEscape(absl::string_view(path.data(), path.size())),
                   "\" is closed; open it again to write"));
}

absl::Status TooManyBytesError(int64_t bytes, int64_t maximum_bytes, std::string_view path) {
  return absl::ResourceExhaustedError(
      absl::StrCat("\"", absl::Utf8SafeCEscape(absl::string_view(path.data(), path.size())),
                   "\" holds ", bytes, " bytes, more than the ", maximum_bytes,
                   " that are read of such a file; give a smaller one"));
}

}  // namespace weft
