#include "tools/flags/network_keys.h"

#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/job_token.h"
#include "distributed/keys/key_folder.h"
#include "tools/console/exit_code.h"

namespace weft {

absl::StatusOr<NetworkKeys> ReadNetworkKeys(const NetworkFlags& flags, Console& console) {
  if (!flags.keys.empty() && flags.insecure_network) {
    return UsageError("--keys encrypts and --insecure-network does not: give one of them");
  }
  if (flags.insecure_network) {
    *console.err << "warning: --insecure-network: nothing is encrypted; whoever can read this "
                    "network can read the job and its token, and can change the weights\n"
                 << std::flush;
  }
  NetworkKeys result;
  std::string token_file = flags.token_file;
  if (!flags.keys.empty()) {
    auto ring = KeyRing::Open(flags.keys);
    if (!ring.ok()) return WithExitCode(ring.status(), ExitCode::kUsage);
    result.keys = *std::move(ring);
    const std::string note = ExpiryNote(result.keys->Current()->certificate, absl::Now());
    if (!note.empty()) *console.err << "warning: " << Printable(note) << "\n" << std::flush;
    if (token_file.empty()) token_file = absl::StrCat(flags.keys, "/", kTokenFile);
  }
  auto token = token_file.empty() ? ReadOrMakeDefaultToken() : ReadTokenFile(token_file);
  if (!token.ok()) return WithExitCode(token.status(), ExitCode::kUsage);
  result.token = *std::move(token);
  return result;
}

}  // namespace weft
