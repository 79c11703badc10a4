// Numbers of the fields that edits touch, and a walk over the fields of an encoded message.
#ifndef WEFT_ONNX_IMPORT_EDIT_WIRE_FIELDS_H_
#define WEFT_ONNX_IMPORT_EDIT_WIRE_FIELDS_H_

#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "onnx_import/codec/wire_reader.h"
#include "platform/status_macros.h"

namespace weft {

// Field numbers of wire.proto, by message.
namespace field_of {
inline constexpr int kModelGraph = 7;
inline constexpr int kModelOpset = 8;
inline constexpr int kModelFunction = 25;
inline constexpr int kGraphNode = 1;
inline constexpr int kGraphInitializer = 5;
inline constexpr int kGraphInput = 11;
inline constexpr int kGraphOutput = 12;
inline constexpr int kFunctionOutput = 5;
inline constexpr int kFunctionNode = 7;
inline constexpr int kFunctionOpset = 9;
inline constexpr int kNodeInput = 1;
inline constexpr int kNodeAttribute = 5;
inline constexpr int kAttributeTensor = 5;
inline constexpr int kAttributeGraph = 6;
inline constexpr int kAttributeGraphs = 11;
inline constexpr int kTensorName = 8;
inline constexpr int kTensorRawData = 9;
inline constexpr int kValueInfoName = 1;
}  // namespace field_of

// Calls `visit(field)`, which returns an absl::Status, for each field of a message. InvalidArgument
// where the encoding is broken, which files that were loaded are not.
template <typename Visit>
absl::Status ForEachField(std::string_view bytes, Visit visit) {
  WireReader reader(bytes);
  while (!reader.AtEnd()) {
    const std::optional<WireField> field = reader.Next();
    if (!field) {
      return absl::InvalidArgumentError(absl::StrCat("the encoding is broken: ", reader.error()));
    }
    WEFT_RETURN_IF_ERROR(visit(*field));
  }
  return absl::OkStatus();
}

// The last field of that number with bytes; nullopt without one.
inline std::optional<std::string_view> FieldWithBytes(std::string_view bytes, int number) {
  std::optional<std::string_view> found;
  const absl::Status read = ForEachField(bytes, [&](const WireField& field) {
    if (field.number == number && field.type == WireType::kBytes) found = field.payload;
    return absl::OkStatus();
  });
  return read.ok() ? found : std::nullopt;
}

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_EDIT_WIRE_FIELDS_H_
