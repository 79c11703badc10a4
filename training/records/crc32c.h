// CRC-32C (Castagnoli): the checksum of TFRecord files.
#ifndef WEFT_TRAINING_RECORDS_CRC32C_H_
#define WEFT_TRAINING_RECORDS_CRC32C_H_

#include <cstdint>
#include <string_view>

namespace weft {

// Polynomial 0x1EDC6F41, reflected, as in RFC 3720, appendix B.4.
uint32_t Crc32c(std::string_view bytes);

// What TFRecord files store: rotated right by 15 bits, plus a constant, so that a checksum of bytes
// that hold a checksum finds damage, too.
uint32_t MaskedCrc32c(std::string_view bytes);

}  // namespace weft

#endif  // WEFT_TRAINING_RECORDS_CRC32C_H_
