#include "training/records/tensorboard_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "training/records/event.pb.h"
#include "training/records/record_file.h"

namespace weft {
namespace {

constexpr int64_t kNanosPerFlush = 2'000'000'000;
// What the first event of a file says; TensorBoard asks for it.
constexpr char kFileVersion[] = "brain.Event:2";

double Seconds(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }

}  // namespace

absl::StatusOr<std::unique_ptr<TensorBoardWriter>> TensorBoardWriter::Create(
    FileSystem& files, Clock& clock, const std::string& folder) {
  WEFT_RETURN_IF_ERROR(files.CreateDirectories(folder));
  const absl::Time now = clock.Now();
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                        files.OpenEmpty(absl::StrCat(folder, "/events.out.tfevents.",
                                                     absl::ToUnixSeconds(now), ".weft")));
  records::Event event;
  event.set_wall_time(Seconds(now));
  event.set_file_version(kFileVersion);
  WEFT_RETURN_IF_ERROR(file->Append(FrameRecord(event.SerializeAsString())));
  return std::unique_ptr<TensorBoardWriter>(new TensorBoardWriter(std::move(file), clock));
}

void TensorBoardWriter::AddScalar(const std::string& tag, int64_t step, double value) {
  if (!status_.ok()) return;
  records::Event event;
  event.set_wall_time(Seconds(clock_.Now()));
  event.set_step(step);
  records::SummaryValue* const point = event.mutable_summary()->add_value();
  point->set_tag(tag);
  point->set_simple_value(static_cast<float>(value));
  status_ = file_->Append(FrameRecord(event.SerializeAsString()));
  const int64_t now = clock_.MonotonicNanos();
  if (!status_.ok() || now - flushed_nanos_ < kNanosPerFlush) return;
  flushed_nanos_ = now;
  status_ = file_->Flush();
}

absl::Status TensorBoardWriter::Close() {
  const absl::Status closed = file_->Close();
  return status_.ok() ? closed : status_;
}

}  // namespace weft
