#include "tensor/small_float.h"

#include <cmath>
#include <limits>

namespace weft {
namespace {

// What the codes beyond the finite numbers mean.
enum class Specials : uint8_t {
  kIeee,     // infinity, then NaN
  kNan,      // the code of all ones is NaN ("FN")
  kZeroNan,  // the code of -0 is NaN ("FNUZ")
  kNone,     // every code is finite
};

// A sign, exponent and mantissa format. The code without its sign bit grows with the magnitude.
struct Format {
  int bits;
  int mantissa_bits;
  int bias;
  uint32_t max_code;  // of the largest finite magnitude
  uint32_t nan_code;
  Specials specials;

  uint32_t sign_bit() const { return 1u << (bits - 1); }
  int min_exponent() const { return 1 - bias; }
};

// IEEE 754 (float16), bfloat16, OCP 8-bit Floating Point Specification 1.0 (E4M3, E5M2), Noune et
// al., arXiv:2206.02915 (the FNUZ types), OCP Microscaling Formats 1.0 (E2M1, E2M3, E3M2).
Format FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return {16, 10, 15, 0x7BFF, 0x7E00, Specials::kIeee};
    case DType::kBfloat16:
      return {16, 7, 127, 0x7F7F, 0x7FC0, Specials::kIeee};
    case DType::kFloat8E4M3Fn:
      return {8, 3, 7, 0x7E, 0x7F, Specials::kNan};
    case DType::kFloat8E4M3Fnuz:
      return {8, 3, 8, 0x7F, 0x80, Specials::kZeroNan};
    case DType::kFloat8E5M2:
      return {8, 2, 15, 0x7B, 0x7E, Specials::kIeee};
    case DType::kFloat8E5M2Fnuz:
      return {8, 2, 16, 0x7F, 0x80, Specials::kZeroNan};
    case DType::kFloat6E2M3:
      return {6, 3, 1, 0x1F, 0x20, Specials::kNone};
    case DType::kFloat6E3M2:
      return {6, 2, 3, 0x1F, 0x20, Specials::kNone};
    default:  // kFloat4E2M1
      return {4, 1, 1, 0x7, 0x8, Specials::kNone};
  }
}

constexpr uint32_t kPowerNan = 0xFF;
constexpr uint32_t kPowerMax = 0xFE;
constexpr int kPowerBias = 127;

double DecodePower(uint32_t code) {
  if (code == kPowerNan) return std::numeric_limits<double>::quiet_NaN();
  return std::ldexp(1.0, static_cast<int>(code) - kPowerBias);
}

uint32_t EncodePower(double value, const CastOptions& options) {
  if (std::isnan(value) || value < 0) return kPowerNan;
  const uint32_t too_small = options.saturate ? 0 : kPowerNan;
  const uint32_t too_large = options.saturate ? kPowerMax : kPowerNan;
  if (value == 0) return too_small;
  if (std::isinf(value)) return too_large;
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);  // in [0.5, 1)
  exponent -= 1;
  const double halfway = 0.75;
  const bool up = (options.power_rounding == PowerRounding::kUp && fraction > 0.5) ||
                  (options.power_rounding == PowerRounding::kNearest && fraction >= halfway);
  if (up) ++exponent;
  if (exponent < -kPowerBias) return too_small;
  if (exponent > static_cast<int>(kPowerMax) - kPowerBias) return too_large;
  return static_cast<uint32_t>(exponent + kPowerBias);
}

uint32_t EncodeOverflow(const Format& format, uint32_t sign, bool saturate) {
  const bool always = format.specials == Specials::kNone;
  if (always || (saturate && format.bits == 8)) return sign | format.max_code;
  switch (format.specials) {
    case Specials::kIeee:
      return sign | (format.max_code + 1);  // infinity
    case Specials::kNan:
      return sign | format.nan_code;
    default:
      return format.nan_code;
  }
}

}  // namespace

bool IsSmallFloat(DType dtype) { return IsFloatingPoint(dtype) && DTypeBits(dtype) < 32; }

double DecodeSmallFloat(DType dtype, uint32_t code) {
  if (dtype == DType::kFloat8E8M0) return DecodePower(code & 0xFF);
  const Format format = FormatOf(dtype);
  const uint32_t magnitude = code & (format.sign_bit() - 1);
  const double sign = (code & format.sign_bit()) != 0 ? -1.0 : 1.0;
  if (format.specials == Specials::kZeroNan && sign < 0 && magnitude == 0) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (magnitude > format.max_code) {
    const bool infinite = format.specials == Specials::kIeee && magnitude == format.max_code + 1;
    const double special = infinite ? std::numeric_limits<double>::infinity()
                                    : std::numeric_limits<double>::quiet_NaN();
    return std::copysign(special, sign);
  }
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const uint32_t implicit_one = 1u << format.mantissa_bits;
  uint32_t mantissa = magnitude & (implicit_one - 1);
  if (exponent > 0) mantissa |= implicit_one;
  const int scale = (exponent > 0 ? exponent - format.bias : format.min_exponent());
  return sign * std::ldexp(static_cast<double>(mantissa), scale - format.mantissa_bits);
}

uint32_t EncodeSmallFloat(DType dtype, double value, const CastOptions& options) {
  if (dtype == DType::kFloat8E8M0) return EncodePower(value, options);
  const Format format = FormatOf(dtype);
  const uint32_t sign = std::signbit(value) ? format.sign_bit() : 0;
  if (std::isnan(value)) {
    const bool has_sign = format.specials == Specials::kIeee || format.specials == Specials::kNan;
    return has_sign ? sign | format.nan_code : format.nan_code;
  }
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return EncodeOverflow(format, sign, options.saturate);
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = fraction in [0.5, 1) times 2^exponent
  exponent = magnitude == 0 ? format.min_exponent() : exponent - 1;
  if (exponent < format.min_exponent()) exponent = format.min_exponent();
  // In units of the last place, exactly; nearbyint rounds to nearest even. The implicit one of a
  // normal number adds the step from exponent field 0 to 1, so one formula covers both kinds.
  const double units = std::ldexp(magnitude, format.mantissa_bits - exponent);
  const uint64_t field = static_cast<uint64_t>(exponent - format.min_exponent());
  const uint64_t code =
      (field << format.mantissa_bits) + static_cast<uint64_t>(std::nearbyint(units));
  if (code > format.max_code) return EncodeOverflow(format, sign, options.saturate);
  if (code == 0 && format.specials == Specials::kZeroNan) return 0;
  return sign | static_cast<uint32_t>(code);
}

}  // namespace weft
