#include "distributed/job_token.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "platform/file_descriptor.h"
#include "platform/secret_file.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace weft {
namespace {

constexpr size_t kTokenBytes = 32;
constexpr size_t kMinCharacters = 32;
constexpr size_t kMaxCharacters = 4096;
constexpr int64_t kMaxFileBytes = 2 * kMaxCharacters;

}  // namespace

absl::StatusOr<std::string> NewJobToken() {
  std::array<char, kTokenBytes> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return SystemError(errno, "read random numbers from", "the system");
  }
  return absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size()));
}

bool SameToken(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned differences = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    differences |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return differences == 0;
}

absl::StatusOr<std::string> ReadTokenFile(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(
      const std::string text,
      ReadSecretFile(path, kMaxFileBytes, "token file", "or name another one (--token-file)"));
  const std::string token(absl::StripAsciiWhitespace(text));
  if (token.size() < kMinCharacters || token.size() > kMaxCharacters) {
    return absl::InvalidArgumentError(absl::StrCat("token file ", path, " holds ", token.size(),
                                                   " characters; a token has ", kMinCharacters,
                                                   " to ", kMaxCharacters));
  }
  return token;
}

absl::Status WriteTokenFile(const std::string& path, const std::string& token) {
  const FileDescriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return SystemError(errno, "make the token file", path);
  const std::string text = absl::StrCat(token, "\n");
  if (write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return SystemError(errno, "write the token file", path);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> DefaultTokenFile() {
  const char* const home = std::getenv("HOME");
  if (home == nullptr || home[0] != '/') {
    return absl::FailedPreconditionError(
        "there is no home folder (HOME) to keep a token in; name a file with --token-file");
  }
  return absl::StrCat(home, "/.weft/token");
}

absl::StatusOr<std::string> ReadOrMakeDefaultToken() {
  WEFT_ASSIGN_OR_RETURN(const std::string path, DefaultTokenFile());
  const std::string folder = path.substr(0, path.rfind('/'));
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return SystemError(errno, "make the folder", folder);
  }
  WEFT_ASSIGN_OR_RETURN(const std::string token, NewJobToken());
  const absl::Status made = WriteTokenFile(path, token);
  if (made.ok()) return token;
  if (!absl::IsAlreadyExists(made)) return made;
  return ReadTokenFile(path);
}

}  // namespace weft
