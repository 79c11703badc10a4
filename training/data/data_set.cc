#include "training/data/data_set.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/random.h"
#include "platform/status_macros.h"
#include "training/data/column_reader.h"
#include "training/data/element_conversion.h"
#include "training/data/ragged_column.h"

namespace weft {
namespace {

// Samples of like lengths are sought among so many batches.
constexpr int64_t kGroupedBatches = 64;
constexpr size_t kEpochsKept = 2;

std::string TypeText(DType dtype) { return std::string(DTypeName(dtype)); }

// The first integer of a column in memory that an input cannot hold.
absl::Status CheckRange(const DataColumn& column, const FeedInput& input) {
  const Tensor* const tensor = column.tensor();
  const FindOutOfRange check = FindRangeCheck(column.dtype(), input.dtype);
  if (tensor == nullptr || check == nullptr) return absl::OkStatus();
  const int64_t bad = check(tensor->raw_data(), tensor->num_elements());
  if (bad < 0) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<int64_t> value,
      ToInt64s(tensor->Reshaped(Shape{tensor->num_elements()}).Rows(bad, bad + 1)));
  return absl::InvalidArgumentError(
      absl::StrCat("input '", input.name, "' is ", TypeText(input.dtype),
                   ", which cannot hold element ", bad, " of the data: ", value[0]));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const DataSet>> DataSet::Open(FileSystem& files,
                                                             const DataSpec& spec) {
  auto data = std::make_shared<DataSet>();
  data->spec_ = spec;
  if (spec.files.empty()) return absl::InvalidArgumentError("no data files were given");
  if (spec.batch < 1) {
    return absl::InvalidArgumentError(absl::StrCat("batch is ", spec.batch, ", expected >= 1"));
  }
  const std::vector<int64_t>& image = spec.image_shape;
  if (!image.empty() && (image.size() != 3 || (image[0] != 1 && image[0] != 3) || image[1] < 1 ||
                         image[2] < 1 || image[1] > 1 << 13 || image[2] > 1 << 13)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the image shape is ", Shape(image).ToString(),
                     ", expected 1 or 3 channels, height and width from 1 to 8192"));
  }
  for (const bool masks : {false, true}) {  // which look at the others
    for (DataSpec::File& file : data->spec_.files) {
      if (file.mask_of.empty() != masks) WEFT_RETURN_IF_ERROR(data->AddColumn(files, file));
    }
  }
  WEFT_RETURN_IF_ERROR(data->AddLengths());
  data->NoteClasses();
  WEFT_RETURN_IF_ERROR(data->AddTransforms());
  if (spec.share != DataShare::kAll && spec.validation_split > 0) {
    WEFT_ASSIGN_OR_RETURN(data->rows_, data->Split(spec.share));
  }
  if (data->steps_per_epoch() == 0) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", data->samples(),
                                                   " samples, fewer than a batch of ", spec.batch,
                                                   "; without --drop-last they are a short one"));
  }
  return data;
}

absl::StatusOr<std::unique_ptr<DataColumn>> DataSet::OpenFile(FileSystem& files,
                                                              const DataSpec::File& file) const {
  if (file.mask_of.empty()) return OpenColumn(files, file, spec_);
  const DataColumn* const other = Find(file.mask_of);
  if (other != nullptr) return NewMaskColumn(*other);
  return absl::InvalidArgumentError(absl::StrCat("input '", file.input, "' is the mask of input '",
                                                 file.mask_of, "', which has no data"));
}

absl::Status DataSet::AddColumn(FileSystem& files, DataSpec::File& file) {
  for (const DataSpec::File& other : spec_.files) {
    if (!file.mask_of.empty() && other.input == file.mask_of) file.padding = other.padding;
  }
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<DataColumn> column, OpenFile(files, file));
  if (columns_.empty()) {
    file_samples_ = column->samples();
  } else if (column->samples() != file_samples_) {
    return absl::InvalidArgumentError(
        absl::StrCat("data file '", file.path, "' has ", column->samples(), " samples, '",
                     spec_.files[0].path, "' has ", file_samples_, "; they must agree"));
  }
  const uint64_t checksum = column->info().checksum;
  if (file.checksum != 0 && file.checksum != checksum) {
    return absl::FailedPreconditionError(
        absl::StrCat("data file '", file.path,
                     "' differs from the one that the coordinator read "
                     "(checksums ",
                     checksum, " and ", file.checksum, ")"));
  }
  file.checksum = checksum;
  if (!columns_.emplace(file.input, std::move(column)).second) {
    return absl::InvalidArgumentError(
        absl::StrCat("input '", file.input, "' was given two data files"));
  }
  return absl::OkStatus();
}

absl::Status DataSet::AddLengths() {
  const DataSpec::File* first = nullptr;
  for (const DataSpec::File& file : spec_.files) {
    if (file.padding.lengths.size() < 2) continue;
    if (first == nullptr) {
      first = &file;
      lengths_ = file.padding.lengths;
      row_lengths_.assign(static_cast<size_t>(file_samples_), 0);
    } else if (file.padding.lengths != lengths_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "inputs '", first->input, "' and '", file.input,
          "' are padded to different lists of lengths; a step has one length, so give both the ",
          "same list, or one of them a single length"));
    }
    const ColumnInfo& info = Find(file.input)->info();
    if (info.lengths == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the samples of input '", file.input, "' have no lengths of their own to be padded"));
    }
    for (size_t row = 0; row < row_lengths_.size(); ++row) {
      row_lengths_[row] = std::max(row_lengths_[row], (*info.lengths)[row]);
    }
  }
  if (spec_.group_lengths && lengths_.empty()) {
    return absl::InvalidArgumentError(
        "--group-lengths is for samples that are padded to one of several lengths; give these, as "
        "--pad INPUT=16,32,64");
  }
  return absl::OkStatus();
}

bool DataSet::HasSeveralLengths(const DataColumn& column) const {
  return !lengths_.empty() && column.info().lengths != nullptr &&
         column.sample_elements() == lengths_.back() &&
         std::any_of(spec_.files.begin(), spec_.files.end(), [&](const DataSpec::File& file) {
           return file.padding.lengths.size() > 1 && Find(file.input) == &column;
         });
}

void DataSet::NoteClasses() {
  std::vector<std::string> found;
  for (const auto& [input, column] : columns_) {
    const std::vector<std::string>& names = column->info().class_names;
    if (names.empty()) continue;
    if (!found.empty() && found != names) return;  // each its own
    found = names;
  }
  if (spec_.classes.empty()) spec_.classes = std::move(found);
}

absl::StatusOr<std::vector<int64_t>> DataSet::Split(DataShare share) const {
  std::vector<int64_t> rows(static_cast<size_t>(file_samples_));
  std::iota(rows.begin(), rows.end(), 0);
  if (share == DataShare::kAll || spec_.validation_split == 0) return rows;
  const auto held = static_cast<int64_t>(
      std::llround(static_cast<double>(file_samples_) * spec_.validation_split));
  // Windows of one sequence would share elements if they were drawn: its end is held out, and the
  // windows that reach into it are left out.
  int64_t overlap = 0;
  bool is_sequence = false;
  for (const auto& [input, column] : columns_) {
    is_sequence = is_sequence || column->info().is_sequence;
    overlap = std::max(overlap, column->info().overlap);
  }
  const int64_t trained = file_samples_ - held - overlap;
  if (held < 1 || trained < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--validation-split ", spec_.validation_split, " of ", file_samples_, " samples leaves ",
        std::max<int64_t>(0, trained), " to train and ", held, " to validate"));
  }
  if (!is_sequence) {
    // The same samples for every seed of the order, so that `eval` finds them again.
    rows = Permutation(RandomKey(0, "validation split"), file_samples_);
  }
  const auto middle = rows.end() - held;
  if (share == DataShare::kTraining) {
    rows.erase(rows.begin() + trained, rows.end());
  } else {
    rows.erase(rows.begin(), middle);
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

absl::Status DataSet::AddTransforms() {
  for (DataSpec::File& file : spec_.files) {
    const DataColumn& column = *columns_.at(file.input);
    Normalization& normalization = file.normalization;
    if (normalization.automatic && normalization.mean.empty()) {
      WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> rows, Split(DataShare::kTraining));
      WEFT_ASSIGN_OR_RETURN(normalization, MeasureNormalization(column, rows, ScalesBytes(column)));
      normalization.automatic = true;
    }
    const bool is_bytes = column.dtype() == DType::kUint8 && column.info().is_amount;
    const double max_value = !is_bytes ? 0 : ScalesBytes(column) ? 1 : 255;
    WEFT_ASSIGN_OR_RETURN(SampleTransform transform,
                          SampleTransform::Create(file, column.sample_shape(), max_value));
    if (!transform.empty() && file.padding.lengths.size() > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("input '", file.input, "' is padded to several lengths; such samples are ",
                       "neither normalized nor augmented"));
    }
    if (!transform.empty()) transforms_.emplace(file.input, std::move(transform));
  }
  return absl::OkStatus();
}

const DataColumn* DataSet::Find(const std::string& input) const {
  const auto it = columns_.find(input);
  return it != columns_.end() ? it->second.get() : nullptr;
}

const SampleTransform* DataSet::FindTransform(const std::string& input) const {
  const auto it = transforms_.find(input);
  return it != transforms_.end() ? &it->second : nullptr;
}

bool DataSet::ScalesBytes(const DataColumn& column) const {
  if (!spec_.scale_bytes || column.dtype() != DType::kUint8 || !column.info().is_amount) {
    return false;
  }
  if (column.sample_shape().rank() >= 2) return true;
  return std::none_of(spec_.files.begin(), spec_.files.end(), [&](const DataSpec::File& file) {
    return file.is_labels && Find(file.input) == &column;
  });
}

bool DataSet::reading_is_work() const {
  return !transforms_.empty() ||
         std::any_of(columns_.begin(), columns_.end(),
                     [](const auto& entry) { return entry.second->info().is_work; });
}

int64_t DataSet::bytes() const {
  int64_t bytes = static_cast<int64_t>(rows_.capacity() * sizeof(rows_[0]));
  bytes += static_cast<int64_t>(row_lengths_.capacity() * sizeof(row_lengths_[0]));
  for (const auto& [input, column] : columns_) bytes += column->info().held_bytes;
  return bytes;
}

int64_t DataSet::steps_per_epoch() const {
  return (samples() + (spec_.drop_last ? 0 : spec_.batch - 1)) / spec_.batch;
}

int64_t DataSet::last_batch() const {
  return std::min(spec_.batch, samples() - (steps_per_epoch() - 1) * spec_.batch);
}

int64_t DataSet::batch_of(int64_t step) const {
  return step % steps_per_epoch() == steps_per_epoch() - 1 ? last_batch() : spec_.batch;
}

std::vector<int64_t> DataSet::MakeOrder(int64_t epoch) const {
  if (!spec_.shuffle) return {};
  const auto number = static_cast<uint64_t>(epoch);
  std::vector<int64_t> order =
      Permutation(RandomKey(spec_.seed, "shuffle").Fold(number), samples());
  if (spec_.group_lengths) GroupLengths(number, order);
  return order;
}

void DataSet::GroupLengths(uint64_t epoch, std::vector<int64_t>& order) const {
  const auto batch = static_cast<size_t>(spec_.batch);
  // What is left for a short batch stays as it was drawn.
  const size_t batches = order.size() / batch;
  const RandomKey key = RandomKey(spec_.seed, "length groups").Fold(epoch);
  for (size_t first = 0; first < batches; first += kGroupedBatches) {
    const size_t count = std::min<size_t>(batches - first, kGroupedBatches);
    std::vector<int64_t> sorted(order.begin() + static_cast<int64_t>(first * batch),
                                order.begin() + static_cast<int64_t>((first + count) * batch));
    std::stable_sort(sorted.begin(), sorted.end(), [this](int64_t a, int64_t b) {
      return LengthOfRow(RowOf(a)) < LengthOfRow(RowOf(b));
    });
    const std::vector<int64_t> places = Permutation(key.Fold(first), static_cast<int64_t>(count));
    for (size_t i = 0; i < count; ++i) {
      const size_t from = static_cast<size_t>(places[i]) * batch;
      std::copy_n(sorted.begin() + static_cast<int64_t>(from), batch,
                  order.begin() + static_cast<int64_t>((first + i) * batch));
    }
  }
}

int64_t DataSet::length_of(int64_t step) const {
  if (lengths_.empty()) return 0;
  const int64_t steps = steps_per_epoch();
  const int64_t epoch = spec_.shuffle ? step / steps : 0;
  const auto at = static_cast<size_t>(step % steps);
  MutexLock lock(mutex_);
  const auto known = step_lengths_.find(epoch);
  if (known != step_lengths_.end()) return known->second[at];
  if (step_lengths_.size() >= kEpochsKept) step_lengths_.erase(step_lengths_.begin());
  const std::vector<int64_t> order = MakeOrder(epoch);
  std::vector<int64_t>& lengths = step_lengths_[epoch];
  for (int64_t i = 0; i < steps; ++i) {
    int64_t longest = 0;
    for (int64_t sample = i * spec_.batch; sample < i * spec_.batch + batch_of(i); ++sample) {
      const int64_t drawn = order.empty() ? sample : order[static_cast<size_t>(sample)];
      longest = std::max(longest, LengthOfRow(RowOf(drawn)));
    }
    lengths.push_back(*std::lower_bound(lengths_.begin(), lengths_.end(), longest));
  }
  return lengths[at];
}

std::vector<BatchShape> DataSet::shapes() const {
  std::vector<int64_t> batches = {batch_of(0)};
  if (last_batch() != batches.front()) batches.push_back(last_batch());
  std::vector<BatchShape> shapes;
  if (lengths_.empty()) {
    for (const int64_t batch : batches) shapes.push_back({batch, 0});
    return shapes;
  }
  std::vector<int64_t> of_samples;
  for (int64_t sample = 0; sample < samples(); ++sample) {
    of_samples.push_back(LengthOfRow(RowOf(sample)));
  }
  std::sort(of_samples.begin(), of_samples.end());
  const auto fitting = [&of_samples](int64_t length) {
    return std::upper_bound(of_samples.begin(), of_samples.end(), length) - of_samples.begin();
  };
  for (size_t i = lengths_.size(); i-- > 0;) {
    // One of a batch needs this length, and none a longer one.
    const int64_t shorter = i == 0 ? 0 : fitting(lengths_[i - 1]);
    for (const int64_t batch : batches) {
      if (fitting(lengths_[i]) > shorter && fitting(lengths_[i]) >= batch) {
        shapes.push_back({batch, lengths_[i]});
      }
    }
  }
  return shapes;
}

Shape DataSet::SampleShape(const std::string& input, int64_t length) const {
  const DataColumn& column = *Find(input);
  if (lengths_.empty() || !HasSeveralLengths(column)) return column.sample_shape();
  return Shape{length > 0 ? length : shapes().front().length};
}

bool DataSet::HasSampleOf(const DataColumn& column, int64_t elements) const {
  if (lengths_.empty() || !HasSeveralLengths(column)) return elements == column.sample_elements();
  return std::binary_search(lengths_.begin(), lengths_.end(), elements);
}

absl::Status CheckInputFits(const DataSet& data, const FeedInput& input) {
  const DataColumn* column = data.Find(input.name);
  if (column == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("input '", input.name,
                                                   "' of the graph has no "
                                                   "data; give it one: --data ",
                                                   input.name, "=FILE"));
  }
  const int64_t per_sample = column->sample_elements();
  if (!data.HasSampleOf(*column, input.sample_shape.num_elements())) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sample of input '", input.name, "' has ", input.sample_shape.num_elements(),
                     " elements (", input.sample_shape.ToString(), "), a sample of the data has ",
                     per_sample, " (file shape ", column->shape().ToString(), ")"));
  }
  if (FindConversion(column->dtype(), input.dtype) == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("input '", input.name, "' is ", TypeText(input.dtype), ", the data is ",
                     TypeText(column->dtype()), ", which cannot stand for it"));
  }
  if (data.FindTransform(input.name) != nullptr && !IsFloatingPoint(input.dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("input '", input.name, "' is ", TypeText(input.dtype),
                     "; only floating inputs are normalized or augmented"));
  }
  return CheckRange(*column, input);
}

}  // namespace weft
