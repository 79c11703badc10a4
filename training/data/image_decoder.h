// Images of files as bytes [C,H,W].
#ifndef WEFT_TRAINING_DATA_IMAGE_DECODER_H_
#define WEFT_TRAINING_DATA_IMAGE_DECODER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensor/shape.h"

namespace weft {

// Whether bytes begin as an image file of a kind that is decoded: PNG, JPEG, BMP, PNM, TIFF, WebP,
// JPEG 2000.
bool LooksLikeImage(std::string_view bytes);

// [3,H,W], from the header alone. InvalidArgument for what is no image or has more than 2^26
// pixels. `name` is for messages.
absl::StatusOr<Shape> ReadImageShape(std::string_view bytes, const std::string& name);

// Writes the pixels as planes red, green, blue, or for one channel their luma (ITU-R BT.601).
// `shape` is [3,H,W] or [1,H,W]; an image of another size is scaled to it if `scale` (averaged
// where it shrinks, linear where it grows), else it is InvalidArgument. So is a PNG that unpacks to
// far more than its pixels. DataLoss for a damaged file. Thread-safe.
absl::Status DecodeImage(std::string_view bytes, const Shape& shape, bool scale,
                         const std::string& name, uint8_t* target);

}  // namespace weft

#endif  // WEFT_TRAINING_DATA_IMAGE_DECODER_H_
