#include "training/data_set.h"

#include <algorithm>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "platform/checksum.h"
#include "platform/random.h"
#include "platform/status_macros.h"
#include "training/data_file.h"

namespace weft {
namespace {

std::string TypeText(DType dtype) { return std::string(DTypeName(dtype)); }

uint64_t ContentChecksum(const Tensor& tensor) {
  return Checksum({static_cast<const std::byte*>(tensor.raw_data()), tensor.bytes()});
}

// Converts `count` elements. Bytes scale to [0, 1] when `scale` and the target is floating.
template <typename From, typename To>
void Convert(const void* source, void* target, int64_t count, bool scale) {
  const From* from = static_cast<const From*>(source);
  To* to = static_cast<To*>(target);
  if (scale) {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]) / static_cast<To>(255);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]);
  }
}

using ConvertFn = void (*)(const void*, void*, int64_t, bool);

template <typename From>
ConvertFn ConverterFrom(DType to) {
  ConvertFn found = nullptr;
  DispatchDType(to, [&](auto zero) {
    using To = decltype(zero);
    if constexpr (std::is_arithmetic_v<To>) found = Convert<From, To>;
  });
  return found;
}

// Null when the conversion would not keep the meaning (a float where an index is wanted).
ConvertFn Converter(DType from, DType to) {
  if (!IsFloatingPoint(to) && IsFloatingPoint(from)) return nullptr;
  ConvertFn found = nullptr;
  DispatchDType(from, [&](auto zero) {
    using From = decltype(zero);
    if constexpr (std::is_arithmetic_v<From>) found = ConverterFrom<From>(to);
  });
  return found;
}

int64_t SampleElements(const Tensor& tensor) {
  return tensor.num_elements() / tensor.shape().dim(0);
}

// The first element that an integer input of type `To` cannot hold.
template <typename From, typename To>
absl::Status CheckRange(const Tensor& tensor, const std::string& input) {
  if constexpr (std::is_integral_v<From> && std::is_integral_v<To> && !std::is_same_v<To, bool> &&
                !std::is_same_v<From, bool>) {
    if (std::in_range<To>(std::numeric_limits<From>::lowest()) &&
        std::in_range<To>(std::numeric_limits<From>::max())) {
      return absl::OkStatus();
    }
    const std::span<const From> values = tensor.data<From>();
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::in_range<To>(values[i])) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("input '", input, "' is ", TypeText(DTypeOf<To>::value),
                       ", which cannot hold element ", i, " of the data: ", values[i]));
    }
  }
  return absl::OkStatus();
}

bool Scales(const DataSpec& spec, DType from, DType to) {
  return spec.scale_bytes && from == DType::kUint8 && IsFloatingPoint(to);
}

class DataSetSource final : public InputSource {
 public:
  explicit DataSetSource(std::shared_ptr<const DataSet> data) : data_(std::move(data)) {}

  int64_t held_bytes() const override {
    return data_->bytes() + static_cast<int64_t>(order_.size() * sizeof(order_[0]));
  }
  int64_t most_bytes() const override {
    const int64_t order = data_->samples() * static_cast<int64_t>(sizeof(order_[0]));
    return data_->bytes() + (data_->spec().shuffle ? order : 0);
  }

  absl::Status Fill(int64_t step, const FeedInput& input, int64_t first, int64_t count,
                    void* target) override {
    const Tensor* tensor = data_->Find(input.name);
    if (tensor == nullptr) return CheckInputFits(*data_, input);
    const ConvertFn convert = Converter(tensor->dtype(), input.dtype);
    const int64_t elements = input.sample_shape.num_elements();
    if (convert == nullptr || elements != SampleElements(*tensor)) {
      return CheckInputFits(*data_, input);
    }
    const DataSpec& spec = data_->spec();
    const int64_t sample_bytes = DTypeBytes(tensor->dtype(), elements);
    const int64_t target_bytes = DTypeBytes(input.dtype, elements);
    const int64_t begin = (step % data_->steps_per_epoch()) * spec.batch + first;
    if (begin + count > data_->samples()) {
      return absl::InternalError(absl::StrCat("samples ", begin, " to ", begin + count,
                                              " were asked for, there are ", data_->samples()));
    }
    SetEpoch(step / data_->steps_per_epoch());
    const bool scale = Scales(spec, tensor->dtype(), input.dtype);
    const char* base = static_cast<const char*>(tensor->raw_data());
    char* out = static_cast<char*>(target);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t sample = order_.empty() ? begin + i : order_[begin + i];
      convert(base + sample * sample_bytes, out + i * target_bytes, elements, scale);
    }
    return absl::OkStatus();
  }

 private:
  void SetEpoch(int64_t epoch) {
    if (!data_->spec().shuffle || epoch == epoch_) return;
    epoch_ = epoch;
    std::vector<int64_t>().swap(order_);  // never two at a time
    order_ =
        Permutation(RandomKey(data_->spec().seed, "shuffle").Fold(static_cast<uint64_t>(epoch)),
                    data_->samples());
  }

  const std::shared_ptr<const DataSet> data_;
  int64_t epoch_ = -1;
  std::vector<int64_t> order_;  // empty: the file's order
};

}  // namespace

std::string DataSpec::ToJson() const {
  nlohmann::json json;
  json["files"] = nlohmann::json::array();
  for (const File& file : files) {
    json["files"].push_back(
        {{"input", file.input}, {"path", file.path}, {"checksum", file.checksum}});
  }
  json["batch"] = batch;
  json["shuffle"] = shuffle;
  json["seed"] = seed;
  json["scale_bytes"] = scale_bytes;
  return json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<DataSpec> DataSpec::FromJson(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto bad = [](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("the data description is damaged: ", what));
  };
  if (!json.is_object()) return bad("it is not a JSON object");
  // Null for a missing key, which is of no type we ask for.
  const auto at = [](const nlohmann::json& object, const char* key) {
    return object.is_object() && object.contains(key) ? object[key] : nlohmann::json();
  };
  DataSpec spec;
  const nlohmann::json files = at(json, "files"), batch = at(json, "batch"),
                       shuffle = at(json, "shuffle"), seed = at(json, "seed"),
                       scale_bytes = at(json, "scale_bytes");
  if (!files.is_array()) return bad("'files' is not a list");
  if (!batch.is_number_integer()) return bad("'batch' is not an integer");
  if (!shuffle.is_boolean() || !scale_bytes.is_boolean()) {
    return bad("'shuffle' or 'scale_bytes' is neither true nor false");
  }
  if (!seed.is_number_unsigned()) return bad("'seed' is not an unsigned integer");
  for (const nlohmann::json& file : files) {
    const nlohmann::json input = at(file, "input"), path = at(file, "path"),
                         checksum = at(file, "checksum");
    if (!input.is_string() || !path.is_string() || !checksum.is_number_unsigned()) {
      return bad("a file lacks 'input', 'path' or 'checksum'");
    }
    spec.files.push_back(
        {input.get<std::string>(), path.get<std::string>(), checksum.get<uint64_t>()});
  }
  spec.batch = batch.get<int64_t>();
  spec.shuffle = shuffle.get<bool>();
  spec.seed = seed.get<uint64_t>();
  spec.scale_bytes = scale_bytes.get<bool>();
  if (spec.batch < 1) return bad(absl::StrCat("'batch' is ", spec.batch, ", expected >= 1"));
  return spec;
}

absl::StatusOr<std::shared_ptr<const DataSet>> DataSet::Open(FileSystem& files,
                                                             const DataSpec& spec) {
  auto data = std::make_shared<DataSet>();
  data->spec_ = spec;
  if (spec.files.empty()) return absl::InvalidArgumentError("no data files were given");
  if (spec.batch < 1) {
    return absl::InvalidArgumentError(absl::StrCat("batch is ", spec.batch, ", expected >= 1"));
  }
  std::string first_path;
  for (DataSpec::File& file : data->spec_.files) {
    WEFT_ASSIGN_OR_RETURN(Tensor tensor, ReadDataFile(files, file.path));
    if (tensor.shape().rank() == 0 || tensor.shape().dim(0) == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "data file '", file.path, "' has no samples: its shape is ", tensor.shape().ToString()));
    }
    const int64_t samples = tensor.shape().dim(0);
    if (data->tensors_.empty()) {
      data->samples_ = samples;
      first_path = file.path;
    } else if (samples != data->samples_) {
      return absl::InvalidArgumentError(absl::StrCat("data file '", file.path, "' has ", samples,
                                                     " samples, '", first_path, "' has ",
                                                     data->samples_, "; they must agree"));
    }
    const uint64_t checksum = ContentChecksum(tensor);
    if (file.checksum != 0 && file.checksum != checksum) {
      return absl::FailedPreconditionError(
          absl::StrCat("data file '", file.path,
                       "' differs from the one that the coordinator read "
                       "(checksums ",
                       checksum, " and ", file.checksum, ")"));
    }
    file.checksum = checksum;
    if (!data->tensors_.emplace(file.input, std::move(tensor)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("input '", file.input, "' was given two data files"));
    }
  }
  return data;
}

const Tensor* DataSet::Find(const std::string& input) const {
  const auto it = tensors_.find(input);
  return it != tensors_.end() ? &it->second : nullptr;
}

int64_t DataSet::bytes() const {
  int64_t bytes = 0;
  for (const auto& [input, tensor] : tensors_) bytes += static_cast<int64_t>(tensor.bytes());
  return bytes;
}

int64_t DataSet::steps_per_epoch() const { return (samples_ + spec_.batch - 1) / spec_.batch; }

int64_t DataSet::last_batch() const { return samples_ - (steps_per_epoch() - 1) * spec_.batch; }

int64_t DataSet::batch_of(int64_t step) const {
  return step % steps_per_epoch() == steps_per_epoch() - 1 ? last_batch() : spec_.batch;
}

std::unique_ptr<InputSource> NewDataSetSource(std::shared_ptr<const DataSet> data) {
  return std::make_unique<DataSetSource>(std::move(data));
}

absl::Status CheckInputFits(const DataSet& data, const FeedInput& input) {
  const Tensor* tensor = data.Find(input.name);
  if (tensor == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("input '", input.name,
                                                   "' of the graph has no "
                                                   "data; give it one: --data ",
                                                   input.name, "=FILE"));
  }
  const int64_t per_sample = SampleElements(*tensor);
  if (per_sample != input.sample_shape.num_elements()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sample of input '", input.name, "' has ", input.sample_shape.num_elements(),
                     " elements (", input.sample_shape.ToString(), "), a sample of the data has ",
                     per_sample, " (file shape ", tensor->shape().ToString(), ")"));
  }
  if (Converter(tensor->dtype(), input.dtype) == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("input '", input.name, "' is ", TypeText(input.dtype), ", the data is ",
                     TypeText(tensor->dtype()), ", which cannot stand for it"));
  }
  absl::Status in_range;
  DispatchDType(tensor->dtype(), [&](auto from) {
    DispatchDType(input.dtype, [&](auto to) {
      in_range = CheckRange<decltype(from), decltype(to)>(*tensor, input.name);
    });
  });
  return in_range;
}

}  // namespace weft
