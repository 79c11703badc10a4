#include "executor/program/step_scalars.h"

#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The number as a scalar of this type, into `bytes`, which hold any; false where it has none.
bool ToScalar(DType dtype, double number, std::byte* bytes) {
  bool known = false;
  DispatchDType(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_arithmetic_v<T>) {
      const T typed = static_cast<T>(number);
      std::memcpy(bytes, &typed, sizeof(T));
      known = true;
    }
  });
  return known;
}

}  // namespace

absl::Status StepScalars::AddStep(Device& device) {
  WEFT_ASSIGN_OR_RETURN(step_, device.Allocate(sizeof(int64_t)));
  return absl::OkStatus();
}

int64_t StepScalars::staging_bytes(const Device& device) const {
  if (device.info().host_accessible) return 0;
  const size_t numbers = scalars_.size() + (step_ == nullptr ? 0 : 1);
  return static_cast<int64_t>(numbers * kAlignment);
}

absl::Status StepScalars::Prepare(Device& device) {
  const int64_t bytes = staging_bytes(device);
  if (bytes == 0) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(staging_, device.AllocateHostMemory(static_cast<size_t>(bytes)));
  return absl::OkStatus();
}

absl::Status StepScalars::Write(int64_t step, const std::map<std::string, double>& values,
                                Device& device, Stream& stream) {
  if (step_ != nullptr) {
    void* const bytes = staging_ == nullptr ? static_cast<void*>(&step)
                                            : static_cast<std::byte*>(staging_->data()) +
                                                  scalars_.size() * kAlignment;
    std::memcpy(bytes, &step, sizeof(step));
    WEFT_RETURN_IF_ERROR(device.CopyFromHost(stream, bytes, step_->data(), sizeof(step)));
  }
  for (size_t i = 0; i < scalars_.size(); ++i) {
    const StepScalar& scalar = scalars_[i];
    const auto value = values.find(scalar.name);
    if (value == values.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("step input '", scalar.name, "' was not given a value"));
    }
    std::byte own[sizeof(double)] = {};
    std::byte* const bytes =
        staging_ == nullptr ? own : static_cast<std::byte*>(staging_->data()) + i * kAlignment;
    if (!ToScalar(scalar.dtype, value->second, bytes) || scalar.device_value.num_elements() != 1) {
      return absl::InvalidArgumentError(absl::StrCat("step input '", scalar.name,
                                                     "' must be a number, not ",
                                                     scalar.device_value.shape().ToString()));
    }
    WEFT_RETURN_IF_ERROR(device.CopyFromHost(stream, bytes, scalar.device_value.raw_data(),
                                             scalar.device_value.bytes()));
  }
  return absl::OkStatus();
}

}  // namespace weft
