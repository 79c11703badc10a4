// Options that several commands have.
#ifndef WEFT_TOOLS_FLAGS_OPTIONS_H_
#define WEFT_TOOLS_FLAGS_OPTIONS_H_

#include <string>

#include "CLI/CLI.hpp"

namespace weft {

// Options of this group are in the short help; those of other groups in --help=all alone.
inline constexpr char kMainOptions[] = "options";

// --output text|json.
CLI::Option* AddOutputFormat(CLI::App& app, std::string& format);

// --log-level LEVEL, into the name of one (platform/log.h).
CLI::Option* AddLogLevel(CLI::App& app, std::string& level);

// A check of a whole number: "" for 1 and more, else what is wrong with it.
std::string AtLeastOne(const std::string& text);

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_OPTIONS_H_
