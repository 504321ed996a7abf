"""Proper names that hold a gendered word or a first name: institutions, chairs, places, works.

What stands in one of them is no person's, and no scope swaps it.
"""

from __future__ import annotations

from biasbios_mlflow.counterfactual.grammar import words_of

__all__ = ["HONOURS", "INSTITUTIONS", "OPENERS", "STATES", "TITLES", "ends_sentence"]

# A run of capitalised words with one of these is no person.
INSTITUTIONS = words_of("""
Academy Agency Airport Alliance Ambassadors Arena Army Artists Associates Association Athletic
Auditorium Avenue Award Awards Ballet Bank Baptist Basketball Bay Beach Behavioral Board Book Books
Boulevard Bridge Building Bureau Business Campus Cancer Care Castle Catholic Cathedral Cemetery
Center Centers Centre Centres Chamber Chapel Chapter Charities Charter Children Children's Choir
Chorus Church City Clinic Clinics Club Co Coalition Collection Collective College Commission
Committee Commonwealth Communications Community Company Conference Congregation Conservatory
Consulting Cooperative Corporation Corps Council Counseling County Court Cove Creative Creek
Dance Dental Dentistry Department Design Designs Distinguished District Drive Education Elementary
Endowed Endowment Enterprises Entertainment Estate Eye Falls Family Fellow Fellows Fellowship
Festival Films Financial Fitness Forum Foundation Fund Galleries Gallery Games Gardens Gazette
Grammar Grant Group Guild Hall Harbor Healing Health Healthcare Heights High Hills Hockey Holdings
Home Hospital Hospice Hospitals Hotel House Inc Industries Infirmary Initiative Inn Institute
Institution International Island Islands Journal Junior Kindergarten Laboratory Labs Landing Law
League Lecture Lectures Lectureship Legal Library Limited LLC LLP Lodge Ltd Magazine Mall
Marketing Massage Medal Media Medical Medicine Memorial Methodist Middle Mills Ministries Ministry
Mission Montessori Movement Museum Music National Network News Newspapers Nursing Observatory
Oncology Opera Orchestra Organization Orthodontics Orthopaedics Orthopedics Page Parish Park
Partners Partnership Pediatrics Pharmacy Philharmonic Photography Physicians Pictures PLC PLLC
Plastic Plaza Point Polytechnic Post Presbyterian Press Primary Prize Productions Professorship
Program Programme Project Properties Psychology Publications Publishers Publishing Radio Ranch Rank
Rapids Realty Records Recovery Recreation Regiment Regional Rehabilitation Religious Residency
Resort Resources Restaurant Review Ridge River Road Rotary Salon Scholar Scholars Scholarship School
Schools Seminary Senior Services Shakespeare Shelter Sisters Society Solutions Spa Springs Square
Stadium State Station Street Studio Studios Summit Surgery Surgical Symphony Synagogue Syndrome
Systems Team Tech Technical Technique Technologies Temple Terrace Theater Theatre Therapy Times
Tower Township Tribune Trophy Trust Union United University Valley Veterans Village Villas
Vineyards Visiting Ward Wellness Winery Women's Workshop Workshops YMCA Youth
""")
# Behind a name they make it that of a chair; before one they are a title.
HONOURS = words_of("""
Chair Endowed Fellow Lecturer Professor Professorship Scholar Readership Chairs Professors
""")
TITLES = words_of("""
Dr Mr Mrs Ms Miss Prof Professor Doctor Sir Lord Lady Dame Judge Justice Senator Coach Captain
President Chairman Chairwoman St Saint Rev Reverend Father Pastor Bishop Rabbi Col Colonel Gen
General Lt Sgt Attorney Congressman Congresswoman Governor Gov Sen Rep Mayor Chef Hon
""")
OPENERS = words_of("""
A About After Although An And As At Because Before Besides Both But By Call Contact Currently Dear
Despite During Email Follow For From He Hello Her Hi His How However I If In Introducing It Its Join
Like Meet My Now Of On Once Or Our Originally Over Presently Prior She Since So That Thanks The
Their Then There These They This Through To Today Together Under Until Visit Watch We What When
Where While Who With Yes You Your
""")
STATES = words_of("""
Alabama Alaska Arizona Arkansas California Calif Colorado Colo Connecticut Conn Delaware Florida
Fla Georgia Hawaii Idaho Illinois Ill Indiana Ind Iowa Kansas Kentucky Louisiana Maine Maryland
Massachusetts Mass Michigan Mich Minnesota Minn Mississippi Missouri Montana Nebraska Nevada
Ohio Oklahoma Okla Oregon Ore Pennsylvania Penn Tennessee Tenn Texas Tex Utah Vermont
Virginia Wash Washington Wisconsin Wis Wyoming Ontario Quebec Alberta Manitoba Canada Australia
England Scotland Wales Ireland India France Spain Germany Mexico Brazil UK USA AL AK AZ AR CA CO
CT DE FL GA HI ID IL IN IA KS KY LA ME MD MA MI MN MS MO MT NE NV NH NJ NM NY NC ND OH OK OR PA RI
SC SD TN TX UT VT VA WA WV WI WY
""") | {"New", "North", "South", "West"}
_ABBREVIATIONS = TITLES | words_of("Mt Ft Ste Jr vs No")


def ends_sentence(previous: str, gap: str) -> bool:
    """Tell whether a sentence ends between a word and the next, given what is between them.

    Examples
    --------
    >>> ends_sentence("Oslo", ". "), ends_sentence("Dr", ". "), ends_sentence("J", ". ")
    (True, False, False)
    """
    if not previous or "\n" in gap or any(mark in gap for mark in '!?:;•"“'):
        return True
    return "." in gap and not (
        gap.startswith(".") and (previous in _ABBREVIATIONS or len(previous) == 1)
    )
