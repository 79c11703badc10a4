// Options that several commands have.
#ifndef WEFT_TOOLS_FLAGS_OPTIONS_H_
#define WEFT_TOOLS_FLAGS_OPTIONS_H_

#include <string>

#include "CLI/CLI.hpp"

namespace weft {

// Options of this group are in the short help; those of other groups in --help=all alone.
inline constexpr char kMainOptions[] = "options";

// What a command takes from elsewhere: operators and signatures. All that read models have them.
inline constexpr char kTrustOptions[] = "trust";

// Options of `train` that a command takes, so that flags and job files of a training can be given
// to it as they are, but that change nothing of what it does (tools/flags/train_flags.h).
inline constexpr char kWithoutEffect[] = "without effect here, taken as train has them";

// --output text|json.
CLI::Option* AddOutputFormat(CLI::App& app, std::string& format);

// --transport auto|sockets: what messages between workers of one machine go through. Empty: auto.
inline constexpr char kSocketTransport[] = "sockets";
CLI::Option* AddTransport(CLI::App& app, std::string& transport);

// --log-level LEVEL, into the name of one (platform/log.h).
CLI::Option* AddLogLevel(CLI::App& app, std::string& level);

// A check of a count: "" for 1 to 2^31 - 1, else what is wrong with it. So the product of two
// counts, of epochs and of batches in one, does not overflow.
std::string AtLeastOne(const std::string& text);

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_OPTIONS_H_
