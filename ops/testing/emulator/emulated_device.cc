#include "ops/testing/emulator/emulated_device.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/testing/emulator/emulated_stream.h"
#include "ops/testing/emulator/emulator.h"
#include "platform/status_macros.h"

namespace weft::testing {
namespace {

FakeDeviceOptions FakeOptions(const EmulatedDeviceOptions& options) {
  FakeDeviceOptions fake;
  fake.kind = DeviceKind::kCuda;
  fake.index = options.index;
  fake.memory_limit = options.memory_limit;
  fake.scheduling = options.scheduling;
  fake.scheduling.seed = options.seed;
  fake.scheduler = options.scheduler;
  fake.runs_host_work = options.runs_host_work;
  return fake;
}

}  // namespace

EmulatedDevice::EmulatedDevice(const EmulatedDeviceOptions& options)
    : FakeDevice(FakeOptions(options)), emulator_(std::make_unique<Emulator>(options)) {}

EmulatedDevice::~EmulatedDevice() = default;

absl::Status EmulatedDevice::Verify() {
  WEFT_RETURN_IF_ERROR(emulator_->Verify());
  return FakeDevice::Verify();
}

std::vector<std::string> EmulatedDevice::reports() const { return emulator_->reports(); }

int64_t EmulatedDevice::report_count() const { return emulator_->report_count(); }

void EmulatedDevice::ClearReports() { emulator_->ClearReports(); }

void EmulatedDevice::Describe(const void* data, const std::string& name, bool read_only) {
  emulator_->Describe(data, name, read_only);
}

void EmulatedDevice::MarkWritten(const void* data, size_t bytes) {
  emulator_->MarkWritten(data, bytes);
}

std::vector<EmulatedLaunchRecord> EmulatedDevice::launches() const { return emulator_->launches(); }

void EmulatedDevice::OnAllocate(void* data, size_t bytes) { emulator_->Add(data, bytes); }

void EmulatedDevice::OnFree(void* data) { emulator_->Remove(data); }

absl::StatusOr<std::unique_ptr<FakeStreamHooks>> EmulatedDevice::NewHooks(const std::string& name) {
  // Not a buffer: what an allocation limit and bytes_in_use() say is not about it.
  void* const data = memory().Allocate(sizeof(DeviceFault));
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat(info().name, " has no memory for the faults of stream ", name));
  }
  {
    const FakeMemoryAccess access(memory());
    new (data) DeviceFault;
  }
  OnAllocate(data, sizeof(DeviceFault));
  emulator_->MarkWritten(data, sizeof(DeviceFault));
  emulator_->Describe(data, "the stream's fault", /*read_only=*/false);
  std::shared_ptr<DeviceFault> fault(static_cast<DeviceFault*>(data), [this](DeviceFault* old) {
    OnFree(old);
    memory().Free(old);
  });
  return std::make_unique<EmulatedStream>(*emulator_, memory(), name, std::move(fault));
}

}  // namespace weft::testing
