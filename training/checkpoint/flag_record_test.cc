#include "training/checkpoint/flag_record.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Values = std::vector<std::string>;

TEST(FlagRecordTest, ACommaWithinAValueSeparatesNothing) {
  const FlagRecord record = {{"--qat-skip", Values{"fc,3*", "conv1"}}, {"--lr", "0.1"}};
  EXPECT_THAT(ValuesOfFlag(record, "--qat-skip"), ElementsAre("fc,3*", "conv1"));
  EXPECT_EQ(TextOfFlag(record, "--qat-skip"), "fc,3*,conv1");
  EXPECT_THAT(ValuesOfFlag(record, "--untie"), IsEmpty());
  EXPECT_EQ(TextOfFlag(record, "--untie"), "");
}

TEST(FlagRecordTest, ListsWithOneTextDiffer) {
  const FlagRecord one = {{"--qat-skip", "a,b"}};
  const FlagRecord two = {{"--qat-skip", Values{"a", "b"}}};
  EXPECT_THAT(FlagDifferences(one, one), IsEmpty());
  EXPECT_THAT(FlagDifferences(one, two), ElementsAre("--qat-skip was 'a,b', is 'a', 'b'"));
}

// Whether a value had the comma is not known any more.
TEST(FlagRecordTest, OlderRecordsHaveTextsAlone) {
  const FlagRecord older = {{"--qat-skip", FlagValues::OfJoined("a,b")}};
  EXPECT_THAT(ValuesOfFlag(older, "--qat-skip"), ElementsAre("a", "b"));
  EXPECT_THAT(FlagDifferences(older, {{"--qat-skip", "a,b"}}), IsEmpty());
  EXPECT_THAT(FlagDifferences(older, {{"--qat-skip", Values{"a", "b"}}}), IsEmpty());
  EXPECT_THAT(FlagDifferences(older, {{"--qat-skip", "a"}}),
              ElementsAre("--qat-skip was a,b, is a"));
  // Without a comma it is one value.
  EXPECT_THAT(FlagDifferences({{"--lr", FlagValues::OfJoined("0.1")}}, {{"--lr", "0.1"}}),
              IsEmpty());
}

TEST(FlagRecordTest, FilesAreWhatTheyHold) {
  const auto record = [](const char* path, std::optional<uint64_t> content) {
    FlagRecord flags = {{"--adapters-in", path}};
    flags["--adapters-in"].content = content;
    return flags;
  };
  EXPECT_THAT(FlagDifferences(record("a", 1), record("b/a", 1)), IsEmpty());
  EXPECT_THAT(FlagDifferences(record("a", 1), record("a", 2)),
              ElementsAre("--adapters-in a has changed"));
  EXPECT_THAT(FlagDifferences(record("a", 1), record("b", 2)),
              ElementsAre("--adapters-in was a, is b, which differs"));
  // Older records have the path alone.
  EXPECT_THAT(FlagDifferences(record("a", std::nullopt), record("a", 2)), IsEmpty());
  EXPECT_THAT(FlagDifferences(record("a", std::nullopt), record("b", 2)),
              ElementsAre("--adapters-in was a, is b"));
}

TEST(FlagRecordTest, WhatOneSideAloneHasIsADifference) {
  EXPECT_THAT(FlagDifferences({{"--lr", "1"}}, {{"--loss", "mse"}}),
              ElementsAre("--loss was not given, is mse", "--lr was 1, is not given"));
}

}  // namespace
}  // namespace weft
