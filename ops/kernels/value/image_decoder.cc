// ImageDecoder: BMP, JPEG, JPEG 2000, PNG, PNM, TIFF and WebP through Leptonica, which reads each
// with its usual library (libjpeg-turbo, OpenJPEG, libpng, libtiff, libwebp).
#include <leptonica/allheaders.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/value_kernel.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// A header may promise more than any image has: 2^28 pixels take a gibibyte.
constexpr int64_t kMaxPixels = int64_t{1} << 28;

struct PixDeleter {
  void operator()(Pix* pix) const { pixDestroy(&pix); }
};
using PixPointer = std::unique_ptr<Pix, PixDeleter>;

// Null when it cannot be decoded. Leptonica prints why unless told not to.
absl::StatusOr<PixPointer> Decode(ValueContext& context, std::span<const uint8_t> stream) {
  [[maybe_unused]] static const l_int32 severity = setMsgSeverity(L_SEVERITY_NONE);
  l_int32 format = 0, width = 0, height = 0, bits = 0, samples = 0, has_map = 0;
  if (pixReadHeaderMem(stream.data(), stream.size(), &format, &width, &height, &bits, &samples,
                       &has_map) != 0) {
    return PixPointer();
  }
  if (int64_t{width} * height > kMaxPixels) {
    return context.InvalidArgument(absl::StrCat("an image of ", width, " x ", height,
                                                " pixels is more than the ", kMaxPixels,
                                                " that are decoded"));
  }
  const PixPointer decoded(pixReadMem(stream.data(), stream.size()));
  if (decoded == nullptr) return PixPointer();
  return PixPointer(pixConvertTo32(decoded.get()));
}

// The luma of ITU-R BT.601, with weights in 65536ths.
uint8_t Luma(int red, int green, int blue) {
  return static_cast<uint8_t>((red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16);
}

void CopyPixels(Pix* pix, const std::string& format, uint8_t* to) {
  const int height = pixGetHeight(pix);
  const int width = pixGetWidth(pix);
  const l_uint32* const words = pixGetData(pix);
  for (int row = 0; row < height; ++row) {
    const l_uint32* const line = words + static_cast<int64_t>(row) * pixGetWpl(pix);
    for (int column = 0; column < width; ++column) {
      l_int32 red = 0, green = 0, blue = 0;
      extractRGBValues(line[column], &red, &green, &blue);
      if (format == "Grayscale") {
        *to++ = Luma(red, green, blue);
        continue;
      }
      *to++ = static_cast<uint8_t>(format == "BGR" ? blue : red);
      *to++ = static_cast<uint8_t>(green);
      *to++ = static_cast<uint8_t>(format == "BGR" ? red : blue);
    }
  }
}

// What cannot be decoded becomes an image without pixels, as the standard says.
absl::Status RunImageDecoder(ValueContext& context) {
  const Tensor& stream = context.InputTensor(0);
  const std::string format = context.attributes().String("pixel_format", "RGB");
  const int64_t channels = format == "Grayscale" ? 1 : 3;
  PixPointer pix;
  if (stream.num_elements() > 0) {
    WEFT_ASSIGN_OR_RETURN(pix, Decode(context, stream.data<uint8_t>()));
  }
  const Shape shape = pix == nullptr
                          ? Shape{0, 0, channels}
                          : Shape{pixGetHeight(pix.get()), pixGetWidth(pix.get()), channels};
  WEFT_ASSIGN_OR_RETURN(Tensor image, Tensor::Allocate(DType::kUint8, shape));
  if (pix != nullptr) CopyPixels(pix.get(), format, image.mutable_data<uint8_t>().data());
  context.SetOutput(0, Value(std::move(image)));
  return absl::OkStatus();
}

}  // namespace

WEFT_REGISTER_VALUE_KERNEL("", "ImageDecoder", RunImageDecoder);

}  // namespace weft
