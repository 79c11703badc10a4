// Names that come from files, made safe to print.
#ifndef WEFT_ONNX_IMPORT_CODEC_QUOTE_H_
#define WEFT_ONNX_IMPORT_CODEC_QUOTE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace weft {

// 'name' in quotes; control characters, quotes and bytes that are not UTF-8 become C escapes, and
// what is longer than 120 bytes ends in "...".
std::string Quoted(std::string_view name);
// The same for the path of a file, whatever its length.
std::string QuotedPath(std::string_view path);

// The same error with control characters and bytes that are not UTF-8 escaped: for texts that other
// layers made of names from a file. OK stays OK.
absl::Status Printable(const absl::Status& status);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_CODEC_QUOTE_H_
