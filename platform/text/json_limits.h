// What JSON from elsewhere may hold, checked before it is parsed.
#ifndef WEFT_PLATFORM_TEXT_JSON_LIMITS_H_
#define WEFT_PLATFORM_TEXT_JSON_LIMITS_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace weft {

// The most that a text may hold. A parser walks lists in lists one by one, but whoever copies,
// prints or frees the result calls itself for each, and a value takes more memory than its text.
struct JsonLimits {
  int64_t bytes = int64_t{64} << 20;
  int depth = 32;                     // lists and objects in each other
  int64_t values = int64_t{1} << 20;  // also lists and objects
  int64_t keys = int64_t{1} << 20;    // of one object
};

// InvalidArgument, with what was seen and the limit, for JSON that holds more than `limits`. A text
// that is no JSON may pass: its parser refuses it, before or where this stopped to understand it.
// Time is linear in the text, memory does not depend on it. Every parser of JSON that enters calls
// this first (tests/house/json_limits_test).
absl::Status CheckJsonLimits(std::string_view text, const JsonLimits& limits = {});

}  // namespace weft

#endif  // WEFT_PLATFORM_TEXT_JSON_LIMITS_H_
