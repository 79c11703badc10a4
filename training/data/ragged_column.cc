#include "training/data/ragged_column.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "training/data/element_conversion.h"
#include "training/records/data_error.h"

namespace weft {
namespace {

constexpr int64_t kLongestList = std::numeric_limits<int32_t>::max();

using Lengths = std::shared_ptr<const std::vector<int32_t>>;

class RaggedColumn final : public DataColumn {
 public:
  RaggedColumn(ColumnInfo info, SharedBytes values, DType stored, std::vector<int64_t> begins,
               double pad_value)
      : DataColumn(std::move(info)),
        values_(std::move(values)),
        stored_bytes_(DTypeBytes(stored, 1)),
        begins_(std::move(begins)),
        convert_(FindConversion(stored, dtype())),
        pad_value_(pad_value) {}

  absl::Status Read(int64_t row, void* target) const override {
    const int64_t count = (*info().lengths)[static_cast<size_t>(row)];
    const std::byte* const from =
        values_.bytes.data() + begins_[static_cast<size_t>(row)] * stored_bytes_;
    convert_(from, target, count, /*scale=*/false);
    const int64_t width = DTypeBytes(dtype(), 1);
    auto* const to = static_cast<std::byte*>(target);
    DispatchDType(dtype(), [&](auto zero) {
      using T = decltype(zero);
      if constexpr (std::is_same_v<T, int64_t> || std::is_floating_point_v<T>) {
        const T value = static_cast<T>(pad_value_);
        for (int64_t i = count; i < sample_elements(); ++i) {
          std::memcpy(to + i * width, &value, sizeof(T));
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  const SharedBytes values_;
  const int64_t stored_bytes_;
  const std::vector<int64_t> begins_;
  const ConvertElements convert_;
  const double pad_value_;
};

class MaskColumn final : public DataColumn {
 public:
  explicit MaskColumn(ColumnInfo info) : DataColumn(std::move(info)) {}

  absl::Status Read(int64_t row, void* target) const override {
    const int64_t own = (*info().lengths)[static_cast<size_t>(row)];
    auto* const to = static_cast<std::byte*>(target);
    for (int64_t i = 0; i < sample_elements(); ++i) {
      const int64_t value = i < own ? 1 : 0;
      std::memcpy(to + i * static_cast<int64_t>(sizeof(value)), &value, sizeof(value));
    }
    return absl::OkStatus();
  }
};

// The lengths as the column has them: cut, or refused.
absl::StatusOr<std::vector<int32_t>> PaddedLengths(const ColumnInfo& info,
                                                   const std::vector<int64_t>& lengths,
                                                   const Padding& padding) {
  const int64_t longest = padding.empty() ? lengths.front() : padding.longest();
  std::vector<int32_t> padded;
  padded.reserve(lengths.size());
  for (size_t row = 0; row < lengths.size(); ++row) {
    const int64_t length = lengths[row];
    if (padding.empty() && length != longest) {
      return UnreadableData(
          info.source, absl::StrCat("sample ", row, " has ", length, " elements, the first has ",
                                    longest, "; --pad INPUT=N makes all N long"));
    }
    if ((length > longest && !padding.cut) || longest > kLongestList) {
      return UnreadableData(
          info.source, absl::StrCat("sample ", row, " has ", length, " elements, more than the ",
                                    std::min(longest, kLongestList), " that it is padded to; give ",
                                    "more, or :cut to lose the rest"));
    }
    padded.push_back(static_cast<int32_t>(std::min(length, longest)));
  }
  return padded;
}

}  // namespace

RaggedLists ListsOfEnds(const Tensor& values, const std::vector<int64_t>& ends) {
  RaggedLists lists;
  lists.values = {{static_cast<const std::byte*>(values.raw_data()), values.bytes()},
                  values.buffer(),
                  /*is_mapped=*/false};
  lists.dtype = values.dtype();
  int64_t begin = 0;
  for (const int64_t end : ends) {
    lists.begins.push_back(begin);
    lists.lengths.push_back(end - begin);
    begin = end;
  }
  return lists;
}

RaggedLists SplitDocuments(SharedBytes tokens, DType dtype, int64_t end, bool next) {
  RaggedLists lists;
  lists.dtype = dtype;
  const int64_t width = DTypeBytes(dtype, 1);
  const auto count = static_cast<int64_t>(tokens.bytes.size()) / width;
  const ConvertElements convert = FindConversion(dtype, DType::kInt64);
  int64_t begin = 0;
  for (int64_t i = 0; i <= count; ++i) {
    int64_t token = end;
    if (i < count) convert(tokens.bytes.data() + i * width, &token, 1, /*scale=*/false);
    if (token != end) continue;
    // Without an end, the last document's last token has none after it.
    const int64_t length = i - begin - (next && i == count ? 1 : 0);
    if (i > begin) {
      lists.begins.push_back(begin + (next ? 1 : 0));
      lists.lengths.push_back(length);
    }
    begin = i + 1;
  }
  lists.values = std::move(tokens);
  return lists;
}

absl::StatusOr<std::unique_ptr<DataColumn>> NewRaggedColumn(ColumnInfo info, RaggedLists lists,
                                                            const Padding& padding) {
  if (lists.lengths.empty()) return UnreadableData(info.source, "there is no sample in it");
  info.samples = static_cast<int64_t>(lists.lengths.size());
  info.dtype = IsFloatingPoint(lists.dtype) ? lists.dtype : DType::kInt64;
  info.is_amount = false;
  if (!padding.empty()) WEFT_RETURN_IF_ERROR(CheckPadValue(info.source, info.dtype, padding.value));
  WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> lengths, PaddedLengths(info, lists.lengths, padding));
  info.sample_shape = Shape{padding.empty() ? lists.lengths.front() : padding.longest()};
  info.checksum = SampledChecksum(lists.values.bytes);
  info.is_work = lists.values.is_mapped;
  info.held_bytes = static_cast<int64_t>(lengths.size() * sizeof(int32_t) +
                                         lists.begins.size() * sizeof(int64_t) +
                                         (lists.values.is_mapped ? 0 : lists.values.bytes.size()));
  info.lengths = std::make_shared<const std::vector<int32_t>>(std::move(lengths));
  return std::make_unique<RaggedColumn>(std::move(info), std::move(lists.values), lists.dtype,
                                        std::move(lists.begins), padding.value);
}

absl::StatusOr<std::unique_ptr<DataColumn>> NewMaskColumn(const DataColumn& other) {
  ColumnInfo info = other.info();
  if (info.lengths == nullptr) {
    return UnreadableData(info.source,
                          "its samples are not padded, so --mask has nothing to tell of them");
  }
  info.source = absl::StrCat("mask of ", info.source);
  info.dtype = DType::kInt64;
  info.class_names.clear();
  info.is_amount = false;
  info.is_work = false;
  info.held_bytes = 0;  // the lengths are the other's
  return std::make_unique<MaskColumn>(std::move(info));
}

absl::Status CheckPadValue(const std::string& source, DType dtype, double value) {
  if (IsFloatingPoint(dtype)) return absl::OkStatus();
  const double min_value = dtype == DType::kUint8 ? 0 : -0x1p53;
  const double max_value = dtype == DType::kUint8 ? 255 : 0x1p53;
  if (value >= min_value && value <= max_value && value == std::floor(value)) {
    return absl::OkStatus();
  }
  return UnreadableData(source,
                        absl::StrCat("is padded with ", value, ", which its ",
                                     dtype == DType::kUint8 ? "bytes" : "integers", " cannot be"));
}

}  // namespace weft
