#include "training/data/example_column.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/checksum.h"
#include "platform/status_macros.h"
#include "training/data/image_decoder.h"
#include "training/data/ragged_column.h"
#include "training/records/data_error.h"
#include "training/records/example.pb.h"
#include "training/records/record_file.h"

namespace weft {
namespace {

constexpr size_t kFeaturesShown = 20;

struct Shard {
  std::string path;
  std::shared_ptr<const MappedFile> file;
  std::vector<RecordPlace> records;

  std::string_view text() const {
    return {static_cast<const char*>(static_cast<const void*>(file->data())), file->size()};
  }
};

const char* KindName(records::Feature::KindCase kind) {
  switch (kind) {
    case records::Feature::kBytesList:
      return "bytes_list";
    case records::Feature::kFloatList:
      return "float_list";
    case records::Feature::kInt64List:
      return "int64_list";
    case records::Feature::KIND_NOT_SET:
      break;
  }
  return "nothing";
}

int64_t ValuesOf(const records::Feature& feature) {
  switch (feature.kind_case()) {
    case records::Feature::kBytesList:
      return feature.bytes_list().value_size();
    case records::Feature::kFloatList:
      return feature.float_list().value_size();
    case records::Feature::kInt64List:
      return feature.int64_list().value_size();
    case records::Feature::KIND_NOT_SET:
      break;
  }
  return 0;
}

// Finds the feature of a record, in `example`, which it is a part of.
absl::StatusOr<const records::Feature*> ParseFeature(const Shard& shard, size_t record,
                                                     const std::string& name,
                                                     records::Example& example) {
  WEFT_ASSIGN_OR_RETURN(const std::string_view payload,
                        ReadRecord(shard.text(), shard.records[record], shard.path));
  if (payload.size() > size_t{std::numeric_limits<int>::max()} ||
      !example.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    return DamagedData(shard.path, absl::StrCat("record ", record, " is no tf.train.Example"));
  }
  const auto& features = example.features().feature();
  const auto found = features.find(name);
  if (found != features.end()) return &found->second;
  std::vector<std::string> names;
  for (const auto& [other, feature] : features) names.push_back(other);
  std::sort(names.begin(), names.end());
  if (names.size() > kFeaturesShown) names.resize(kFeaturesShown);
  return UnreadableData(shard.path,
                        absl::StrCat("record ", record, " has no feature '", name, "'; it has ",
                                     features.size(), ": ", absl::StrJoin(names, ", ")));
}

class ExampleColumn final : public DataColumn {
 public:
  ExampleColumn(ColumnInfo info, ExampleOptions options, records::Feature::KindCase kind,
                bool is_image, std::vector<Shard> shards)
      : DataColumn(std::move(info)),
        options_(std::move(options)),
        kind_(kind),
        is_image_(is_image),
        shards_(std::move(shards)) {
    int64_t end = 0;
    for (const Shard& shard : shards_) {
      ends_.push_back(end += static_cast<int64_t>(shard.records.size()));
    }
  }

  absl::Status Read(int64_t row, void* target) const override {
    const auto place = std::upper_bound(ends_.begin(), ends_.end(), row) - ends_.begin();
    const Shard& shard = shards_[static_cast<size_t>(place)];
    const auto record =
        static_cast<size_t>(row - ends_[static_cast<size_t>(place)]) + shard.records.size();
    records::Example example;
    WEFT_ASSIGN_OR_RETURN(const records::Feature* feature,
                          ParseFeature(shard, record, options_.feature, example));
    const auto where = [&] { return absl::StrCat("record ", record); };
    if (feature->kind_case() != kind_) {
      return UnreadableData(shard.path, absl::StrCat(where(), ", feature '", options_.feature,
                                                     "': holds ", KindName(feature->kind_case()),
                                                     ", the first ", KindName(kind_)));
    }
    if (is_image_) {
      if (ValuesOf(*feature) != 1) return WrongLength(shard, record, ValuesOf(*feature), 1);
      return DecodeImage(feature->bytes_list().value(0), sample_shape(),
                         !options_.image_shape.empty(), absl::StrCat(shard.path, ", ", where()),
                         static_cast<uint8_t*>(target));
    }
    return CopyValues(shard, record, *feature, target);
  }

 private:
  absl::Status WrongLength(const Shard& shard, size_t record, int64_t got, int64_t expected) const {
    return UnreadableData(
        shard.path,
        absl::StrCat(
            "record ", record, ", feature '", options_.feature, "': ", got, " values, ",
            !options_.padding.empty()
                ? absl::StrCat("more than the ", expected, " that it is padded to; give more, or ",
                               ":cut to lose the rest")
                : absl::StrCat("the first has ", expected, "; --pad INPUT=N makes all N long")));
  }

  template <typename T, typename Values>
  absl::Status CopyAndPad(const Shard& shard, size_t record, const Values& values,
                          void* target) const {
    auto count = static_cast<int64_t>(values.size());
    if (options_.padding.cut) count = std::min(count, sample_elements());
    const bool fits =
        !options_.padding.empty() ? count <= sample_elements() : count == sample_elements();
    if (!fits) return WrongLength(shard, record, count, sample_elements());
    T* const to = static_cast<T*>(target);
    std::copy(values.begin(), values.begin() + count, to);
    std::fill(to + count, to + sample_elements(), static_cast<T>(options_.padding.value));
    return absl::OkStatus();
  }

  absl::Status CopyValues(const Shard& shard, size_t record, const records::Feature& feature,
                          void* target) const {
    switch (kind_) {
      case records::Feature::kFloatList:
        return CopyAndPad<float>(shard, record, feature.float_list().value(), target);
      case records::Feature::kInt64List:
        return CopyAndPad<int64_t>(shard, record, feature.int64_list().value(), target);
      default:
        if (ValuesOf(feature) != 1) return WrongLength(shard, record, ValuesOf(feature), 1);
        return CopyAndPad<uint8_t>(shard, record, feature.bytes_list().value(0), target);
    }
  }

  const ExampleOptions options_;
  const records::Feature::KindCase kind_;
  const bool is_image_;
  const std::vector<Shard> shards_;
  std::vector<int64_t> ends_;  // samples up to the end of each shard
};

// The values of a record's list.
int64_t LengthOf(const records::Feature& feature) {
  const bool is_bytes =
      feature.kind_case() == records::Feature::kBytesList && feature.bytes_list().value_size() == 1;
  return is_bytes ? static_cast<int64_t>(feature.bytes_list().value(0).size()) : ValuesOf(feature);
}

// Of all records; those that the padding cuts, or that are too long (which reading says), as long
// as it is.
absl::StatusOr<std::vector<int32_t>> ReadLengths(const std::vector<Shard>& shards,
                                                 const ExampleOptions& options) {
  std::vector<int32_t> lengths;
  records::Example example;
  for (const Shard& shard : shards) {
    for (size_t record = 0; record < shard.records.size(); ++record) {
      WEFT_ASSIGN_OR_RETURN(const records::Feature* feature,
                            ParseFeature(shard, record, options.feature, example));
      lengths.push_back(
          static_cast<int32_t>(std::min(LengthOf(*feature), options.padding.longest())));
    }
  }
  return lengths;
}

// Type and sample shape, from the first record; whether it is an image.
absl::StatusOr<bool> DescribeSamples(const Shard& shard, const records::Feature& feature,
                                     const ExampleOptions& options, ColumnInfo& info) {
  int64_t values = ValuesOf(feature);
  bool is_image = false;
  switch (feature.kind_case()) {
    case records::Feature::kFloatList:
      info.dtype = DType::kFloat32;
      break;
    case records::Feature::kInt64List:
      info.dtype = DType::kInt64;
      info.is_amount = false;
      break;
    default: {
      if (values != 1) break;
      const std::string& bytes = feature.bytes_list().value(0);
      info.dtype = DType::kUint8;
      values = static_cast<int64_t>(bytes.size());
      is_image = LooksLikeImage(bytes);
      if (is_image && options.image_shape.empty()) {
        WEFT_ASSIGN_OR_RETURN(info.sample_shape, ReadImageShape(bytes, shard.path + ", record 0"));
      } else if (is_image) {
        info.sample_shape = Shape(options.image_shape);
      }
    }
  }
  if (info.dtype == DType::kInvalid || (values == 0 && options.padding.empty())) {
    return UnreadableData(
        shard.path,
        absl::StrCat("record 0, feature '", options.feature, "': ", values, " values of ",
                     KindName(feature.kind_case()), ", expected numbers or one text of bytes"));
  }
  if (is_image) return true;
  if (!options.padding.empty()) {
    WEFT_RETURN_IF_ERROR(CheckPadValue(shard.path, info.dtype, options.padding.value));
    info.sample_shape = Shape{options.padding.longest()};
  } else if (values > 1) {
    info.sample_shape = Shape{values};
  }
  return false;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DataColumn>> OpenExamples(FileSystem& files,
                                                         const std::vector<std::string>& paths,
                                                         const std::string& source,
                                                         const ExampleOptions& options) {
  std::vector<Shard> shards;
  ColumnInfo info;
  info.source = source;
  info.is_work = true;
  std::vector<uint64_t> sums;
  for (const std::string& path : paths) {
    Shard shard{path, nullptr, {}};
    WEFT_ASSIGN_OR_RETURN(shard.file, files.MapFile(path));
    WEFT_ASSIGN_OR_RETURN(shard.records, FindRecords(shard.text(), path));
    for (const RecordPlace& place : shard.records) {
      sums.insert(sums.end(), {place.offset, place.bytes, place.checksum});
    }
    info.samples += static_cast<int64_t>(shard.records.size());
    info.held_bytes += static_cast<int64_t>(shard.records.capacity() * sizeof(RecordPlace));
    if (!shard.records.empty()) shards.push_back(std::move(shard));
  }
  if (shards.empty()) return UnreadableData(source, "there is no record in it");
  records::Example example;
  WEFT_ASSIGN_OR_RETURN(const records::Feature* feature,
                        ParseFeature(shards[0], 0, options.feature, example));
  WEFT_ASSIGN_OR_RETURN(const bool is_image, DescribeSamples(shards[0], *feature, options, info));
  if (options.wants_lengths && !options.padding.empty() && !is_image) {
    WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> lengths, ReadLengths(shards, options));
    info.held_bytes += static_cast<int64_t>(lengths.size() * sizeof(int32_t));
    info.lengths = std::make_shared<const std::vector<int32_t>>(std::move(lengths));
  }
  // The records' own checksums stand for their contents.
  info.checksum = Checksum(std::as_bytes(std::span<const uint64_t>(sums)));
  return std::unique_ptr<DataColumn>(std::make_unique<ExampleColumn>(
      std::move(info), options, feature->kind_case(), is_image, std::move(shards)));
}

}  // namespace weft
