#include "executor/interfaces/wait_info.h"

#include "gtest/gtest.h"
#include "platform/status.h"

namespace weft {
namespace {

const WaitInfo kNote = {"tensor 'h'", "", "from worker:1"};

TEST(WaitInfoTest, SurvivesAnnotationsAndLearnsItsPlaceOnce) {
  absl::Status status = WithWaitInfo(absl::AbortedError("the job was aborted"), kNote);
  EXPECT_EQ(WaitText(status), "tensor 'h' from worker:1");
  status = Annotate(WithWaitPlace(status, "node 'receive/h', step 3"), "step 3");
  status = Annotate(WithWaitPlace(status, "step 3"), "worker:0");
  EXPECT_EQ(status.message(), "worker:0: step 3: the job was aborted");
  EXPECT_EQ(WaitText(status), "tensor 'h' (node 'receive/h', step 3) from worker:1");
}

TEST(WaitInfoTest, TheFirstNoteStays) {
  const absl::Status first = WithWaitInfo(absl::AbortedError("x"), kNote);
  EXPECT_EQ(WaitText(WithWaitInfo(first, {"tensor 'g'", "", ""})), "tensor 'h' from worker:1");
}

TEST(WaitInfoTest, ErrorsWithoutAWaitHaveNone) {
  EXPECT_EQ(WaitText(WithWaitPlace(absl::InternalError("x"), "node 'a'")), "");
  EXPECT_TRUE(WithWaitInfo(absl::OkStatus(), kNote).ok());
  EXPECT_EQ(WaitText(WithWaitText(absl::InternalError("x"), "")), "");
}

TEST(WaitInfoTest, TextComesOverTheWire) {
  const std::string text = "tensor 'h' (node 'n', step 3) from worker:1";
  EXPECT_EQ(WaitText(WithWaitText(absl::AbortedError("x"), text)), text);
}

}  // namespace
}  // namespace weft
