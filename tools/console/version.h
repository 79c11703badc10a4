// The version of the program.
#ifndef WEFT_TOOLS_CONSOLE_VERSION_H_
#define WEFT_TOOLS_CONSOLE_VERSION_H_

namespace weft {

// Coordinator and workers must have the same.
inline constexpr char kVersion[] = "graph_runner 0.1";

}  // namespace weft

#endif  // WEFT_TOOLS_CONSOLE_VERSION_H_
