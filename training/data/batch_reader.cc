#include "training/data/batch_reader.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/random.h"
#include "platform/status_macros.h"
#include "training/data/element_conversion.h"
#include "training/data/prefetching_source.h"
#include "training/records/data_error.h"

namespace weft {
namespace {

constexpr int kUsualPrefetch = 2;

// Memory of a reading thread, used again for every sample.
struct Workspace {
  std::vector<std::byte> raw;
  std::vector<float> values;
  std::vector<float> scratch;
};

// Writes one sample of a column to a target of the type of an input.
class SampleWriter {
 public:
  SampleWriter(const DataSet& data, const DataColumn& column, const FeedInput& input)
      : column_(column),
        elements_(input.sample_shape.num_elements()),
        transform_(data.FindTransform(input.name)),
        dtype_(input.dtype),
        scale_(data.ScalesBytes(column) && IsFloatingPoint(input.dtype)),
        convert_(FindConversion(column.dtype(), input.dtype)),
        to_float_(FindConversion(column.dtype(), DType::kFloat32)),
        from_float_(FindConversion(DType::kFloat32, input.dtype)),
        // What is in memory was checked as a whole.
        out_of_range_(column.tensor() != nullptr ? nullptr
                                                 : FindRangeCheck(column.dtype(), input.dtype)) {}

  bool is_possible() const { return convert_ != nullptr; }

  absl::Status Write(int64_t row, const RandomKey& key, void* target, Workspace& workspace) const {
    const void* raw = column_.Peek(row);
    if (raw == nullptr) {
      workspace.raw.resize(static_cast<size_t>(column_.sample_bytes()));
      WEFT_RETURN_IF_ERROR(column_.Read(row, workspace.raw.data()));
      raw = workspace.raw.data();
    }
    const int64_t bad = out_of_range_ == nullptr ? -1 : out_of_range_(raw, elements_);
    if (bad >= 0) {
      return UnreadableData(
          column_.info().source,
          absl::StrCat("element ", bad, " of sample ", row, " is beyond ",
                       std::string(DTypeName(dtype_)), ", which the input holds"));
    }
    if (transform_ == nullptr) {
      convert_(raw, target, elements_, scale_);
      return absl::OkStatus();
    }
    const bool in_place = dtype_ == DType::kFloat32;
    workspace.values.resize(static_cast<size_t>(in_place ? 0 : elements_));
    float* const values = in_place ? static_cast<float*>(target) : workspace.values.data();
    to_float_(raw, values, elements_, scale_);
    transform_->Apply({values, static_cast<size_t>(elements_)}, key, workspace.scratch);
    if (!in_place) from_float_(values, target, elements_, /*scale=*/false);
    return absl::OkStatus();
  }

 private:
  const DataColumn& column_;
  const int64_t elements_;  // of a sample of the input: the first of the column's
  const SampleTransform* const transform_;
  const DType dtype_;
  const bool scale_;
  const ConvertElements convert_;
  const ConvertElements to_float_;
  const ConvertElements from_float_;
  const FindOutOfRange out_of_range_;
};

}  // namespace

BatchReader::BatchReader(std::shared_ptr<const DataSet> data, int orders)
    : data_(std::move(data)), max_orders_(static_cast<size_t>(std::max(1, orders))) {}

int64_t BatchReader::held_bytes() const {
  MutexLock lock(mutex_);
  int64_t bytes = data_->bytes();
  for (const auto& [epoch, order] : orders_) {
    bytes += static_cast<int64_t>(order->size() * sizeof(int64_t));
  }
  return bytes;
}

int64_t BatchReader::max_bytes() const {
  const int64_t order = data_->samples() * static_cast<int64_t>(sizeof(int64_t));
  const std::vector<DataSpec::File>& files = data_->spec().files;
  // Lengths of steps are found from an order of their own.
  const bool has_lengths = std::any_of(files.begin(), files.end(), [](const DataSpec::File& file) {
    return file.padding.lengths.size() > 1;
  });
  const int64_t orders = static_cast<int64_t>(max_orders_) + (has_lengths ? 1 : 0);
  return data_->bytes() + (data_->spec().shuffle ? order * orders : 0);
}

BatchReader::Order BatchReader::OrderOf(int64_t epoch) {
  if (!data_->spec().shuffle) return nullptr;
  MutexLock lock(mutex_);
  if (const auto known = orders_.find(epoch); known != orders_.end()) return known->second;
  // The one that is furthest away goes, before the new one comes.
  while (orders_.size() >= max_orders_) {
    const bool front = epoch - orders_.begin()->first >= orders_.rbegin()->first - epoch;
    orders_.erase(front ? orders_.begin() : std::prev(orders_.end()));
  }
  return orders_[epoch] = std::make_shared<const std::vector<int64_t>>(data_->MakeOrder(epoch));
}

absl::Status BatchReader::Fill(int64_t step, const FeedInput& input, int64_t first, int64_t count,
                               void* target) {
  const DataColumn* const column = data_->Find(input.name);
  if (column == nullptr) return CheckInputFits(*data_, input);
  const SampleWriter writer(*data_, *column, input);
  const int64_t elements = input.sample_shape.num_elements();
  if (!writer.is_possible() || !data_->HasSampleOf(*column, elements)) {
    return CheckInputFits(*data_, input);
  }
  const DataSpec& spec = data_->spec();
  const int64_t begin = (step % data_->steps_per_epoch()) * spec.batch + first;
  if (begin + count > data_->samples()) {
    return absl::InternalError(absl::StrCat("samples ", begin, " to ", begin + count,
                                            " were asked for, there are ", data_->samples()));
  }
  const int64_t length = data_->length_of(step);
  if (elements != data_->SampleShape(input.name, length).num_elements()) {
    return absl::InternalError(absl::StrCat("step ", step, " is padded to ", length, " elements, ",
                                            elements, " were asked for of input '", input.name,
                                            "'"));
  }
  const int64_t epoch = step / data_->steps_per_epoch();
  const Order order = OrderOf(epoch);
  const RandomKey key = RandomKey(spec.seed, "augment").Fold(static_cast<uint64_t>(epoch));
  const int64_t target_bytes = DTypeBytes(input.dtype, elements);
  thread_local Workspace workspace;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t sample = order == nullptr ? begin + i : (*order)[static_cast<size_t>(begin + i)];
    const int64_t row = data_->RowOf(sample);
    WEFT_RETURN_IF_ERROR(writer.Write(row, key.Fold(static_cast<uint64_t>(row)),
                                      static_cast<char*>(target) + i * target_bytes, workspace));
  }
  return absl::OkStatus();
}

std::unique_ptr<InputSource> NewDataSetSource(std::shared_ptr<const DataSet> data) {
  const DataSpec& spec = data->spec();
  const int usual = data->reading_is_work() ? kUsualPrefetch : 0;
  PrefetchOptions options;
  options.depth = spec.prefetch >= 0 ? spec.prefetch : usual;
  options.threads = spec.reader_threads;
  if (options.depth == 0) return std::make_unique<BatchReader>(std::move(data), /*orders=*/1);
  int64_t sample_bytes = 0;
  for (const DataSpec::File& file : spec.files) {
    const DataColumn& column = *data->Find(file.input);
    // Floating inputs are float32 mostly, indices int64.
    const bool is_amount = IsFloatingPoint(column.dtype()) || data->ScalesBytes(column);
    sample_bytes += column.sample_elements() *
                    (is_amount && column.dtype() != DType::kFloat64 ? int64_t{4} : int64_t{8});
  }
  options.batch_bytes = std::min(spec.batch, data->samples()) * sample_bytes;
  const auto kind_of = [data](int64_t step) {
    const BatchShape shape = data->shape_of(step);
    return std::pair(shape.batch, shape.length);
  };
  return std::make_unique<PrefetchingSource>(std::make_unique<BatchReader>(data, /*orders=*/2),
                                             kind_of, options);
}

}  // namespace weft
