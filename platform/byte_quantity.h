// Bytes as people read them.
#ifndef WEFT_PLATFORM_BYTE_QUANTITY_H_
#define WEFT_PLATFORM_BYTE_QUANTITY_H_

#include <cstdint>
#include <string>

namespace weft {

// At most three significant digits, without an exponent or needless zeros, for 0 <= value < 1024.
std::string ShortNumber(double value);

// With a binary prefix: "512 B", "1.5 KiB", "24 MiB".
std::string ByteQuantity(int64_t bytes);

}  // namespace weft

#endif  // WEFT_PLATFORM_BYTE_QUANTITY_H_
