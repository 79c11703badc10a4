#include "training/data/data_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "platform/text/json_limits.h"

namespace weft {
namespace {

using Json = nlohmann::json;

struct AugmentationName {
  const char* name;
  Augmentation::Kind kind;
  double min_amount;  // of the amount; 0 and 0: it takes none
  double max_amount;
};

constexpr std::array<AugmentationName, 4> kAugmentations = {{
    {"flip", Augmentation::Kind::kFlip, 0, 0},
    {"crop", Augmentation::Kind::kCrop, 1, 1 << 12},
    {"brightness", Augmentation::Kind::kBrightness, 0, 1},
    {"cutout", Augmentation::Kind::kCutout, 1, 1 << 12},
}};
constexpr std::array<const char*, 3> kShares = {"all", "training", "validation"};
constexpr int kMaxPrefetch = 1000;
constexpr size_t kMaxLengths = 64;
constexpr int64_t kLongestPadded = std::numeric_limits<int32_t>::max();
constexpr int kMaxThreads = 1000;

absl::StatusOr<std::vector<double>> ParseNumbers(absl::string_view text) {
  std::vector<double> numbers;
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    if (!absl::SimpleAtod(word, &numbers.emplace_back()) || !std::isfinite(numbers.back())) {
      return absl::InvalidArgumentError(absl::StrCat("'", word, "' is no number"));
    }
  }
  return numbers;
}

absl::StatusOr<Augmentation> ParseAugmentation(absl::string_view word) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(word, absl::MaxSplits(':', 1));
  for (const AugmentationName& known : kAugmentations) {
    if (parts.first != known.name) continue;
    Augmentation augmentation{known.kind, 0};
    if (known.max_amount == 0) {
      if (parts.first.size() == word.size()) return augmentation;
      return absl::InvalidArgumentError(absl::StrCat("'", known.name, "' takes no amount"));
    }
    const bool whole = known.min_amount == 1;
    if (!absl::SimpleAtod(parts.second, &augmentation.amount) ||
        !(augmentation.amount >= known.min_amount && augmentation.amount <= known.max_amount) ||
        (whole && augmentation.amount != std::floor(augmentation.amount))) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", word, "': expected ", known.name, ":N with ", whole ? "a whole" : "a",
                       " number from ", known.min_amount, " to ", known.max_amount));
    }
    return augmentation;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", word, "' is unknown; there are flip, crop:N, brightness:X and cutout:N"));
}

bool IsPadLength(int64_t length) { return length > 0 && length <= kLongestPadded; }

// "16,32,64" or "16..64".
absl::StatusOr<std::vector<int64_t>> ParsePadLengths(const std::string& text) {
  std::vector<int64_t> lengths;
  const std::vector<std::string> range = absl::StrSplit(text, absl::MaxSplits("..", 1));
  if (range.size() == 2) {
    int64_t step = 0, longest = 0;
    const bool fits = absl::SimpleAtoi(range[0], &step) && absl::SimpleAtoi(range[1], &longest) &&
                      IsPadLength(step) && IsPadLength(longest) && step <= longest &&
                      longest / step < static_cast<int64_t>(kMaxLengths);
    if (!fits) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", text, "': expected STEP..LONGEST, at most ", kMaxLengths, " lengths"));
    }
    for (int64_t length = step; length < longest; length += step) lengths.push_back(length);
    lengths.push_back(longest);
    return lengths;
  }
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    const int64_t before = lengths.empty() ? 0 : lengths.back();
    int64_t& length = lengths.emplace_back();
    if (!absl::SimpleAtoi(word, &length) || !IsPadLength(length) || length <= before ||
        lengths.size() > kMaxLengths) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", text, "': expected one length or several, ascending, at most ",
                       kMaxLengths, ": 64 or 16,32,64 or 16..64"));
    }
  }
  return lengths;
}

Json ToJsonObject(const DataSpec::File& file) {
  Json json = {{"input", file.input},
               {"path", file.path},
               {"checksum", file.checksum},
               {"part", file.part},
               {"format", file.format},
               {"is_labels", file.is_labels},
               {"pad_lengths", file.padding.lengths},
               {"pad_value", file.padding.value},
               {"pad_cut", file.padding.cut},
               {"mask_of", file.mask_of}};
  json["automatic"] = file.normalization.automatic;
  json["mean"] = file.normalization.mean;
  json["deviation"] = file.normalization.deviation;
  json["augmentations"] = Json::array();
  for (const Augmentation& augmentation : file.augmentations) {
    json["augmentations"].push_back(
        {{"kind", static_cast<int>(augmentation.kind)}, {"amount", augmentation.amount}});
  }
  return json;
}

// Takes the fields of an object, one by one; the first that is missing or of another kind is the
// error.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {
    if (!object.is_object()) Fail("an entry is not a JSON object");
  }

  const absl::Status& status() const { return status_; }
  void Fail(const std::string& what) {
    if (status_.ok()) {
      status_ = absl::InvalidArgumentError(absl::StrCat("the data description is damaged: ", what));
    }
  }

  // Leaves `target` as it is where the field is missing and not `required`.
  void Take(const char* key, std::string& target, bool required = false) {
    if (const Json* value = Find(key, required)) {
      if (!value->is_string()) return Fail(absl::StrCat("'", key, "' is not a text"));
      target = value->get<std::string>();
    }
  }
  void Take(const char* key, bool& target, bool required = false) {
    if (const Json* value = Find(key, required)) {
      if (!value->is_boolean()) return Fail(absl::StrCat("'", key, "' is neither true nor false"));
      target = value->get<bool>();
    }
  }
  void Take(const char* key, uint64_t& target, bool required = false) {
    if (const Json* value = Find(key, required)) {
      if (!value->is_number_unsigned()) {
        return Fail(absl::StrCat("'", key, "' is not an unsigned integer"));
      }
      target = value->get<uint64_t>();
    }
  }
  void Take(const char* key, double& target, bool required = false) {
    if (const Json* value = Find(key, required)) {
      if (!value->is_number()) return Fail(absl::StrCat("'", key, "' is not a number"));
      target = value->get<double>();
    }
  }
  template <typename Integer>
  void TakeInteger(const char* key, int64_t min_value, int64_t max_value, Integer& target,
                   bool required = false) {
    if (const Json* value = Find(key, required)) {
      const bool fits = value->is_number_integer() &&
                        (!value->is_number_unsigned() ||
                         value->get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()});
      if (!fits || value->get<int64_t>() < min_value || value->get<int64_t>() > max_value) {
        return Fail(
            absl::StrCat("'", key, "' is not an integer from ", min_value, " to ", max_value));
      }
      target = static_cast<Integer>(value->get<int64_t>());
    }
  }
  template <typename Number>
  void TakeList(const char* key, std::vector<Number>& target) {
    if (const Json* list = FindList(key, false)) {
      for (const Json& value : *list) {
        if (!value.is_number()) return Fail(absl::StrCat("'", key, "' is not a list of numbers"));
        target.push_back(value.get<Number>());
      }
    }
  }
  // Of texts that were escaped.
  void TakeList(const char* key, std::vector<std::string>& target) {
    if (const Json* list = FindList(key, false)) {
      for (const Json& value : *list) {
        if (!value.is_string() ||
            !absl::CUnescape(value.get<std::string>(), &target.emplace_back())) {
          return Fail(absl::StrCat("'", key, "' is not a list of texts"));
        }
      }
    }
  }
  const Json* FindList(const char* key, bool required) {
    const Json* value = Find(key, required);
    if (value == nullptr || value->is_array()) return value;
    Fail(absl::StrCat("'", key, "' is not a list"));
    return nullptr;
  }

 private:
  const Json* Find(const char* key, bool required) {
    if (!status_.ok()) return nullptr;
    const auto it = object_.find(key);
    if (it != object_.end()) return &*it;
    if (required) Fail(absl::StrCat("'", key, "' is missing"));
    return nullptr;
  }

  const Json& object_;
  absl::Status status_;
};

constexpr int64_t kMaxElements = int64_t{1} << 40;

absl::StatusOr<DataSpec::File> ReadFile(const Json& json) {
  DataSpec::File file;
  Fields fields(json);
  fields.Take("input", file.input, /*required=*/true);
  fields.Take("path", file.path, /*required=*/true);
  fields.Take("checksum", file.checksum, /*required=*/true);
  fields.Take("part", file.part);
  fields.Take("format", file.format);
  fields.Take("is_labels", file.is_labels);
  fields.TakeList("pad_lengths", file.padding.lengths);
  fields.Take("pad_value", file.padding.value);
  fields.Take("pad_cut", file.padding.cut);
  fields.Take("mask_of", file.mask_of);
  int64_t before = 0;
  for (const int64_t length : file.padding.lengths) {
    if (!IsPadLength(length) || length <= before || file.padding.lengths.size() > kMaxLengths) {
      fields.Fail("'pad_lengths' are not ascending lengths");
    }
    before = length;
  }
  fields.Take("automatic", file.normalization.automatic);
  fields.TakeList("mean", file.normalization.mean);
  fields.TakeList("deviation", file.normalization.deviation);
  if (file.normalization.mean.size() != file.normalization.deviation.size()) {
    fields.Fail("'mean' and 'deviation' differ in length");
  }
  if (const Json* list = fields.FindList("augmentations", false)) {
    for (const Json& entry : *list) {
      Augmentation augmentation;
      int kind = 0;
      Fields of_entry(entry);
      of_entry.TakeInteger("kind", 0, kAugmentations.size() - 1, kind, /*required=*/true);
      of_entry.Take("amount", augmentation.amount, /*required=*/true);
      WEFT_RETURN_IF_ERROR(of_entry.status());
      augmentation.kind = static_cast<Augmentation::Kind>(kind);
      const AugmentationName& known = kAugmentations[static_cast<size_t>(kind)];
      if (!(augmentation.amount >= known.min_amount && augmentation.amount <= known.max_amount)) {
        fields.Fail("the 'amount' of an augmentation is out of range");
      }
      file.augmentations.push_back(augmentation);
    }
  }
  WEFT_RETURN_IF_ERROR(fields.status());
  return file;
}

}  // namespace

absl::StatusOr<std::vector<Augmentation>> ParseAugmentations(const std::string& text) {
  std::vector<Augmentation> augmentations;
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    WEFT_ASSIGN_OR_RETURN(augmentations.emplace_back(), ParseAugmentation(word));
  }
  return augmentations;
}

absl::StatusOr<Padding> ParsePadding(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  Padding padding;
  WEFT_ASSIGN_OR_RETURN(padding.lengths, ParsePadLengths(parts[0]));
  bool has_value = false;
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i] == "cut" && i + 1 == parts.size()) {
      padding.cut = true;
    } else if (!has_value && absl::SimpleAtod(parts[i], &padding.value)) {
      has_value = true;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("'", text, "': expected LENGTHS[:VALUE][:cut], for example 64:-100:cut"));
    }
  }
  return padding;
}

absl::StatusOr<Normalization> ParseNormalization(const std::string& text) {
  Normalization normalization;
  if (text == "auto") {
    normalization.automatic = true;
    return normalization;
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '/');
  if (parts.size() != 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "': expected auto or MEAN/DEVIATION, for example 0.13/0.31, or one number for ",
        "each channel: 0.49,0.48,0.45/0.25,0.24,0.26"));
  }
  WEFT_ASSIGN_OR_RETURN(normalization.mean, ParseNumbers(parts[0]));
  WEFT_ASSIGN_OR_RETURN(normalization.deviation, ParseNumbers(parts[1]));
  if (normalization.mean.size() != normalization.deviation.size()) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' has ", normalization.mean.size(),
                                                   " means and ", normalization.deviation.size(),
                                                   " deviations; they must agree"));
  }
  for (const double deviation : normalization.deviation) {
    if (deviation > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "': a deviation is ", deviation, ", expected more than 0"));
  }
  return normalization;
}

std::string DataSpec::ToJson() const {
  Json json;
  json["files"] = Json::array();
  for (const File& file : files) json["files"].push_back(ToJsonObject(file));
  json["batch"] = batch;
  json["shuffle"] = shuffle;
  json["seed"] = seed;
  json["scale_bytes"] = scale_bytes;
  json["drop_last"] = drop_last;
  json["validation_split"] = validation_split;
  json["share"] = kShares[static_cast<size_t>(share)];
  json["sequence_length"] = sequence_length;
  json["stride"] = stride;
  json["document_end"] = document_end;
  json["group_lengths"] = group_lengths;
  json["vocabulary"] = vocabulary;
  json["image_shape"] = image_shape;
  // Texts of files, which may be no UTF-8.
  json["classes"] = Json::array();
  for (const std::string& name : classes) json["classes"].push_back(absl::CEscape(name));
  json["prefetch"] = prefetch;
  json["reader_threads"] = reader_threads;
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

absl::StatusOr<DataSpec> DataSpec::FromJson(const std::string& text) {
  WEFT_RETURN_IF_ERROR(Annotate(CheckJsonLimits(text), "the data description is damaged"));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  DataSpec spec;
  Fields fields(json);
  if (const Json* files = fields.FindList("files", true)) {
    for (const Json& file : *files) {
      WEFT_ASSIGN_OR_RETURN(spec.files.emplace_back(), ReadFile(file));
    }
  }
  fields.TakeInteger("batch", 1, std::numeric_limits<int64_t>::max(), spec.batch, true);
  fields.Take("shuffle", spec.shuffle, true);
  fields.Take("seed", spec.seed, true);
  fields.Take("scale_bytes", spec.scale_bytes, true);
  fields.Take("drop_last", spec.drop_last);
  fields.Take("validation_split", spec.validation_split);
  if (!(spec.validation_split >= 0 && spec.validation_split < 1)) {
    fields.Fail("'validation_split' is not from 0 to 1");
  }
  std::string share = kShares[0];
  fields.Take("share", share);
  const auto known = std::find(kShares.begin(), kShares.end(), share);
  if (known == kShares.end()) fields.Fail("'share' is unknown");
  fields.TakeInteger("sequence_length", 1, kMaxElements, spec.sequence_length);
  fields.TakeInteger("stride", 0, kMaxElements, spec.stride);
  fields.TakeInteger("document_end", -1, kMaxElements, spec.document_end);
  fields.Take("group_lengths", spec.group_lengths);
  fields.Take("vocabulary", spec.vocabulary);
  fields.TakeList("image_shape", spec.image_shape);
  fields.TakeList("classes", spec.classes);
  fields.TakeInteger("prefetch", -1, kMaxPrefetch, spec.prefetch);
  fields.TakeInteger("reader_threads", 1, kMaxThreads, spec.reader_threads);
  WEFT_RETURN_IF_ERROR(fields.status());
  spec.share = static_cast<DataShare>(known - kShares.begin());
  return spec;
}

}  // namespace weft
