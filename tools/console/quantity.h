// Numbers as people read them.
#ifndef WEFT_TOOLS_CONSOLE_QUANTITY_H_
#define WEFT_TOOLS_CONSOLE_QUANTITY_H_

#include <cstdint>
#include <string>

#include "platform/byte_quantity.h"

namespace weft {

// Three or more digits and a decimal prefix: "834", "61.7 k", "1.25 M", "20 G".
std::string Quantity(double value);

// "850 ms", "12.4 s", "3 min 05 s", "2 h 10 min".
std::string DurationText(double seconds);

}  // namespace weft

#endif  // WEFT_TOOLS_CONSOLE_QUANTITY_H_
