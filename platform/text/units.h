// Quantities with units, as people write them in files.
#ifndef WEFT_PLATFORM_TEXT_UNITS_H_
#define WEFT_PLATFORM_TEXT_UNITS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace weft {

// "4GiB", "512 MB", "100": bytes. Units: B (or none), kB, MB, GB, TB (powers of 1000), KiB, MiB,
// GiB, TiB (powers of 1024). InvalidArgument names the text and the units there are; so below.
absl::StatusOr<int64_t> ParseBytes(const std::string& text);
// "25Gbit/s", "3.2GB/s": bytes per second. A unit is needed: bit/s or B/s with k, M, G or T, or the
// byte units of ParseBytes followed by "/s".
absl::StatusOr<double> ParseBandwidth(const std::string& text);
// "50us", "1.5 ms", "2s": seconds. A unit is needed: ns, us, ms or s.
absl::StatusOr<double> ParseSeconds(const std::string& text);

// The inverse, exact, for files: "4GiB" where a unit divides evenly, else "1000B". People get
// ByteQuantity (platform/byte_quantity.h).
std::string BytesToString(int64_t bytes);
std::string BandwidthToString(double bytes_per_second);
std::string SecondsToString(double seconds);

}  // namespace weft

#endif  // WEFT_PLATFORM_TEXT_UNITS_H_
