#include "platform/text/json_limits.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

std::string Repeated(const std::string& part, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += part;
  return text;
}

std::string Refusal(const std::string& text, const JsonLimits& limits = {}) {
  const absl::Status status = CheckJsonLimits(text, limits);
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(JsonLimitsTest, TakesWhatFilesHold) {
  EXPECT_EQ(Refusal(""), "");
  EXPECT_EQ(Refusal("17"), "");
  EXPECT_EQ(Refusal(R"({"a": [1, 2, {"b": null}], "c": "text"})"), "");
}

TEST(JsonLimitsTest, RefusesListsAndObjectsThatAreTooDeep) {
  EXPECT_EQ(Refusal(Repeated("[", 32) + Repeated("]", 32)), "");
  EXPECT_EQ(Refusal(Repeated("[", 33) + Repeated("]", 33)),
            "JSON with 33 lists in each other (at byte 32); at most 32 are read");
  EXPECT_THAT(Refusal(Repeated("{\"a\":", 100000)), HasSubstr("lists in each other"));
  EXPECT_THAT(Refusal(Repeated("[", 100000)), HasSubstr("at byte 32"));
  // A hundred thousand beside each other are not deep.
  EXPECT_EQ(Refusal("[" + Repeated("[],", 100000) + "[]]"), "");
}

TEST(JsonLimitsTest, BracketsInTextsAreText) {
  EXPECT_EQ(Refusal("[\"" + Repeated("[{,:", 1000) + "\"]", {1 << 20, 1, 2, 1}), "");
  // A quotation mark behind a backslash does not end a text, one behind two does.
  EXPECT_EQ(Refusal(R"(["\"[[[["])", {100, 1, 10, 10}), "");
  EXPECT_THAT(Refusal(R"(["\\",[]])", {100, 1, 10, 10}), HasSubstr("2 lists in each other"));
  // A text without an end, and one that ends with a backslash, do not lead behind it.
  EXPECT_EQ(Refusal("[\"["), "");
  EXPECT_EQ(Refusal("[\"\\"), "");
}

TEST(JsonLimitsTest, CountsBytesValuesAndKeys) {
  EXPECT_THAT(Refusal("[1, 2]", {5, 2, 10, 10}), HasSubstr("JSON with 6 bytes"));
  EXPECT_EQ(Refusal("[1, 2]", {10, 2, 3, 10}), "");
  EXPECT_THAT(Refusal("[1, 2, 3]", {10, 2, 3, 10}), HasSubstr("JSON with 4 values"));
  const JsonLimits keys = {100, 2, 100, 2};
  EXPECT_EQ(Refusal(R"({"a": {"b": 1, "c": 2}, "d": 3})", keys), "");
  EXPECT_THAT(Refusal(R"({"a": 1, "b": 2, "c": 3})", keys), HasSubstr("3 keys in one object"));
}

}  // namespace
}  // namespace weft
