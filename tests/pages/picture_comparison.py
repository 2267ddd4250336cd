"""Comparison of pictures in Chromium, which has decoders for them.

The pictures show DejaVu Sans (Debian's `fonts-dejavu-core`), because another font changes the layout.
"""

import base64

from playwright.sync_api import Page

FONT = '* { font-family: "DejaVu Sans" !important } body > header { position: static !important }'
# A pixel differs if a channel differs by more than an eighth of its range.
_SHARE_OF_DIFFERENT_PIXELS = """async (pictures) => {
  const [one, other] = await Promise.all(pictures.map(async (picture) => {
    const image = new Image();
    image.src = `data:image/png;base64,${picture}`;
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height });
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, image.width, image.height);
  }));
  if (one.width !== other.width || Math.abs(one.height - other.height) > 8) return 1;
  const length = Math.min(one.data.length, other.data.length);
  let different = 0;
  for (let n = 0; n < length; n += 4) {
    if ([0, 1, 2].some((channel) => Math.abs(one.data[n + channel] - other.data[n + channel]) > 32)) different += 4;
  }
  return different / length;
}"""
_SMALL = """async ({ picture, share, quality }) => {
  const image = new Image();
  image.src = `data:image/png;base64,${picture}`;
  await image.decode();
  const [width, height] = [image.width, image.height].map((each) => Math.round(each * share));
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(image, 0, 0, width, height);
  return canvas.toDataURL("image/webp", quality).split(",")[1];
}"""


def difference(page: Page, one: bytes, other: bytes) -> float:
    """The share of the pixels that differ; 1 if the sizes differ."""
    return float(page.evaluate(_SHARE_OF_DIFFERENT_PIXELS, [_text(each) for each in (one, other)]))


def small(page: Page, picture: bytes, share: float, quality: float) -> bytes:
    """The picture with this share of its width and height, as WebP."""
    given = {"picture": _text(picture), "share": share, "quality": quality}
    return base64.b64decode(page.evaluate(_SMALL, given))


def _text(picture: bytes) -> str:
    return base64.b64encode(picture).decode()
