// JSON as the commands print it: members in the order in which they were added.
#ifndef WEFT_TOOLS_COMMANDS_COMMAND_JSON_H_
#define WEFT_TOOLS_COMMANDS_COMMAND_JSON_H_

#include "nlohmann/json.hpp"

namespace weft {

using Json = nlohmann::ordered_json;

}  // namespace weft

#endif  // WEFT_TOOLS_COMMANDS_COMMAND_JSON_H_
