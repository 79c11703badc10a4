// Maps as JSON: an object for a map, a list of objects for a sequence of maps.
#ifndef WEFT_TOOLS_REPORTS_MAP_JSON_H_
#define WEFT_TOOLS_REPORTS_MAP_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "onnx_import/importer.h"
#include "tensor/value.h"

namespace weft {

// {"0": 0.25, "1": 0.75}: keys are texts, as JSON wants them, in the map's order; numbers that are
// not finite become null. `value` is what a Graph has for a value of `type`; InvalidArgument when
// it is not.
absl::StatusOr<nlohmann::ordered_json> MapToJson(const Value& value, const MapType& type);

// The other way. InvalidArgument names what does not fit, and where.
absl::StatusOr<Value> MapFromJson(const std::string& text, const MapType& type);

}  // namespace weft

#endif  // WEFT_TOOLS_REPORTS_MAP_JSON_H_
