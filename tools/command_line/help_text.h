// What --help prints.
#ifndef WEFT_TOOLS_COMMAND_LINE_HELP_TEXT_H_
#define WEFT_TOOLS_COMMAND_LINE_HELP_TEXT_H_

#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "tools/commands/command.h"

namespace weft {

// All commands, a line each.
std::string OverviewHelp(const std::vector<std::unique_ptr<Command>>& commands);

// At most 24 lines: usage, the main options, three examples.
std::string ShortHelp(const Command& command, const CLI::App& app);

// The same with every option, by group.
std::string FullHelp(const Command& command, const CLI::App& app);

}  // namespace weft

#endif  // WEFT_TOOLS_COMMAND_LINE_HELP_TEXT_H_
