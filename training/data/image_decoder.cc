// Through Leptonica, which reads each format with its usual library (libjpeg-turbo, libpng, ...).
#include "training/data/image_decoder.h"

#include <leptonica/allheaders.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "training/records/data_error.h"

namespace weft {
namespace {

// A header may promise more than any image has.
constexpr int64_t kMaxPixels = int64_t{1} << 26;
constexpr size_t kSignatureBytes = 12;  // that Leptonica looks at

struct PixDeleter {
  void operator()(Pix* pix) const { pixDestroy(&pix); }
};
using PixPointer = std::unique_ptr<Pix, PixDeleter>;

const l_uint8* Bytes(std::string_view bytes) {
  return reinterpret_cast<const l_uint8*>(bytes.data());
}

// Leptonica prints what it thinks unless told not to.
void Silence() { [[maybe_unused]] static const l_int32 severity = setMsgSeverity(L_SEVERITY_NONE); }

// The luma of ITU-R BT.601, with weights in 65536ths.
uint8_t Luma(int red, int green, int blue) {
  return static_cast<uint8_t>((red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16);
}

void CopyPlanes(Pix* pix, int64_t channels, uint8_t* target) {
  const int height = pixGetHeight(pix);
  const int width = pixGetWidth(pix);
  const int64_t plane = int64_t{height} * width;
  const l_uint32* const words = pixGetData(pix);
  for (int row = 0; row < height; ++row) {
    const l_uint32* const line = words + static_cast<int64_t>(row) * pixGetWpl(pix);
    for (int column = 0; column < width; ++column) {
      l_int32 red = 0, green = 0, blue = 0;
      extractRGBValues(line[column], &red, &green, &blue);
      uint8_t* const to = target + int64_t{row} * width + column;
      if (channels == 1) {
        *to = Luma(red, green, blue);
        continue;
      }
      to[0] = static_cast<uint8_t>(red);
      to[plane] = static_cast<uint8_t>(green);
      to[2 * plane] = static_cast<uint8_t>(blue);
    }
  }
}

uint32_t BigEndianAt(std::string_view bytes, size_t at) {
  const l_uint8* const b = Bytes(bytes) + at;
  return uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | uint32_t{b[3]};
}

// Whether a PNG (https://www.w3.org/TR/png-3/) has more compressed data than its pixels can need.
// The decoder unpacks it all, a thousand bytes for each, before it leaves the rest out.
bool HasDataBehindItsPixels(std::string_view bytes) {
  constexpr std::string_view kSignature("\x89PNG\r\n\x1a\n", 8);
  constexpr size_t kHeaderEnd = 33;  // of the signature and the chunk IHDR
  if (bytes.substr(0, kSignature.size()) != kSignature || bytes.size() < kHeaderEnd) return false;
  const int64_t width = BigEndianAt(bytes, 16), height = BigEndianAt(bytes, 20);
  const int64_t depth = Bytes(bytes)[24], color = Bytes(bytes)[25];
  const int64_t channels = color == 2 ? 3 : color == 4 ? 2 : color == 6 ? 4 : 1;
  // Each row has a byte for its filter. Interlaced rows are at most twice as many; deflate makes
  // nothing twice as long, but for what an encoder adds to each row and to the whole.
  const int64_t packed_at_most = 4 * height * (1 + (width * channels * depth + 7) / 8) + 65'536;
  int64_t packed = 0;
  for (size_t at = kSignature.size(); at + 8 <= bytes.size();) {
    const uint32_t size = BigEndianAt(bytes, at);
    if (bytes.substr(at + 4, 4) == "IDAT") packed += size;
    at += size_t{12} + size;  // length, name and checksum
  }
  return packed > packed_at_most;
}

std::string SizeText(int64_t height, int64_t width) { return absl::StrCat(height, " x ", width); }

}  // namespace

bool LooksLikeImage(std::string_view bytes) {
  Silence();
  l_int32 format = IFF_UNKNOWN;
  return bytes.size() >= kSignatureBytes && findFileFormatBuffer(Bytes(bytes), &format) == 0 &&
         format != IFF_UNKNOWN && format != IFF_PS && format != IFF_LPDF && format != IFF_SPIX;
}

absl::StatusOr<Shape> ReadImageShape(std::string_view bytes, const std::string& name) {
  l_int32 format = 0, width = 0, height = 0, bits = 0, samples = 0, has_map = 0;
  if (!LooksLikeImage(bytes) || pixReadHeaderMem(Bytes(bytes), bytes.size(), &format, &width,
                                                 &height, &bits, &samples, &has_map) != 0) {
    return UnreadableData(name, "is no image that we decode (PNG, JPEG, BMP, PNM, TIFF, WebP)");
  }
  if (width < 1 || height < 1 || int64_t{width} * height > kMaxPixels) {
    return UnreadableData(name, absl::StrCat("an image of ", SizeText(height, width),
                                             " pixels, expected 1 to ", kMaxPixels));
  }
  return Shape{3, height, width};
}

absl::Status DecodeImage(std::string_view bytes, const Shape& shape, bool scale,
                         const std::string& name, uint8_t* target) {
  WEFT_ASSIGN_OR_RETURN(const Shape found, ReadImageShape(bytes, name));
  const int64_t height = shape.dim(1), width = shape.dim(2);
  const bool fits = found.dim(1) == height && found.dim(2) == width;
  if (!fits && !scale) {
    return UnreadableData(
        name, absl::StrCat("an image of ", SizeText(found.dim(1), found.dim(2)),
                           " pixels, the first has ", SizeText(height, width), "; --image-shape 3x",
                           height, "x", width, " scales all to one size"));
  }
  if (HasDataBehindItsPixels(bytes)) {
    return UnreadableData(
        name, absl::StrCat("has more data than an image of ", SizeText(found.dim(1), found.dim(2)),
                           " pixels can need"));
  }
  const PixPointer decoded(pixReadMem(Bytes(bytes), bytes.size()));
  PixPointer pix(decoded == nullptr ? nullptr : pixConvertTo32(decoded.get()));
  if (pix != nullptr && !fits) {
    pix.reset(pixScaleGeneral(pix.get(),
                              static_cast<float>(width) / static_cast<float>(found.dim(2)),
                              static_cast<float>(height) / static_cast<float>(found.dim(1)),
                              /*sharpfract=*/0, /*sharpwidth=*/0));
  }
  if (pix == nullptr) return DamagedData(name, "the image is damaged or truncated");
  if (pixGetHeight(pix.get()) != height || pixGetWidth(pix.get()) != width) {
    return DamagedData(name, absl::StrCat("the image has ",
                                          SizeText(pixGetHeight(pix.get()), pixGetWidth(pix.get())),
                                          " pixels, expected ", SizeText(height, width)));
  }
  CopyPlanes(pix.get(), shape.dim(0), target);
  return absl::OkStatus();
}

}  // namespace weft
