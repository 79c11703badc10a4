// FlagRecord: the flags of a job that change what is computed, as its checkpoints have them.
#ifndef WEFT_TRAINING_CHECKPOINT_FLAG_RECORD_H_
#define WEFT_TRAINING_CHECKPOINT_FLAG_RECORD_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft {

// What one flag was given, in its order. A value.
struct FlagValues {
  FlagValues() = default;
  FlagValues(std::string value) : values({std::move(value)}) {}         // NOLINT: one value
  FlagValues(const char* value) : FlagValues(std::string(value)) {}     // NOLINT: one value
  FlagValues(std::vector<std::string> all) : values(std::move(all)) {}  // NOLINT: several
  // Of a text that has the values joined by commas, as older records do: a comma within a value
  // separates, too.
  static FlagValues OfJoined(const std::string& text);

  // The values joined by commas.
  std::string Text() const;

  std::vector<std::string> values;
  bool is_joined = false;  // whether they come from a joined text that has a comma
  // Of a flag that names a file: XXH3-64 of what is read there. Unset: not known.
  std::optional<uint64_t> content;
};

// By flag: "--lr" -> "0.1".
using FlagRecord = std::map<std::string, FlagValues>;

// The values of a flag, none where it was not given; and their text, "" then.
std::vector<std::string> ValuesOfFlag(const FlagRecord& record, const std::string& flag);
std::string TextOfFlag(const FlagRecord& record, const std::string& flag);

// A line for each flag that differs: "--lr was 0.1, is 0.01". Of values that a joined text has, the
// texts are compared; of files whose contents both records know, the contents and not the paths.
std::vector<std::string> FlagDifferences(const FlagRecord& saved, const FlagRecord& now);

}  // namespace weft

#endif  // WEFT_TRAINING_CHECKPOINT_FLAG_RECORD_H_
